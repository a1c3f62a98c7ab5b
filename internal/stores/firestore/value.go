package firestore

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	fs "cloud.google.com/go/firestore"
	"google.golang.org/genproto/googleapis/type/latlng"

	"recount/internal/subject"
)

const smallValue = 8 // about the size of a number, a boolean or null

// shownMap turns a document's fields into JSON values, and says about how large they are.
func shownMap(fields map[string]any) (out map[string]any, size int, err error) {
	out = make(map[string]any, len(fields))
	for name, value := range fields {
		shown, n, err := shownValue(value)
		if err != nil {
			return nil, 0, err
		}
		out[name] = shown
		size += len(name) + n
	}
	return out, size, nil
}

// shownValue turns a Firestore value into a JSON value: an instant into RFC 3339, bytes into base64, a reference into
// the path below the database, a point into its latitude and longitude, a number that JSON has not into its name.
func shownValue(value any) (out any, size int, err error) {
	switch v := value.(type) {
	case nil, bool, int64:
		return v, smallValue, nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'g', -1, 64), smallValue, nil
		}
		return v, smallValue, nil
	case string:
		return v, len(v), nil
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), smallValue, nil
	case []byte:
		text := base64.StdEncoding.EncodeToString(v)
		return text, len(text), nil
	case *latlng.LatLng:
		return map[string]any{"latitude": v.GetLatitude(), "longitude": v.GetLongitude()}, 2 * smallValue, nil
	case *fs.DocumentRef:
		return referencePath(v), len(v.Path), nil
	case fs.Vector64:
		return shownVector(v), smallValue * len(v), nil
	case fs.Vector32:
		return shownVector(v), smallValue * len(v), nil
	case []any:
		return shownList(v)
	case map[string]any:
		return shownMap(v)
	default:
		return nil, 0, &subject.Fault{Reason: subject.ReasonReadFailed, Cause: fmt.Errorf("a value of type %T", v)}
	}
}

func shownList(values []any) (out []any, size int, err error) {
	out = make([]any, len(values))
	for i, value := range values {
		shown, n, err := shownValue(value)
		if err != nil {
			return nil, 0, err
		}
		out[i] = shown
		size += n
	}
	return out, size, nil
}

func shownVector[F float32 | float64](vector []F) []any {
	out := make([]any, len(vector))
	for i, f := range vector {
		out[i] = float64(f)
	}
	return out
}

func referencePath(ref *fs.DocumentRef) string {
	_, path, found := strings.Cut(ref.Path, "/documents/")
	if !found {
		return ref.Path
	}
	return path
}

// parseJSON reads one JSON text, numbers as they are written.
func parseJSON(text string) (value any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("a column of JSON holds none: %w", err)
	}
	return value, nil
}
