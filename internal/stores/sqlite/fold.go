package sqlite

import (
	"database/sql/driver"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"modernc.org/sqlite"
)

// foldFunction is the SQL name of fold: SQLite's own lower() knows ASCII only.
const foldFunction = "recount_fold"

func init() { //nolint:gochecknoinits // the driver takes functions before its first connection only
	sqlite.MustRegisterFunction(foldFunction, &sqlite.FunctionImpl{
		NArgs:         1,
		Deterministic: true,
		VolatileArgs:  true, // else the driver cuts a text off at its first NUL; nothing here outlives the call
		Scalar: func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			if text, ok := args[0].(string); ok {
				return fold(text), nil
			}
			return args[0], nil
		},
	})
}

// fold is full Unicode case folding. What is not valid UTF-8 stays as it is: it can be nobody's identity, and folding
// would turn it into text that could.
func fold(text string) string {
	ascii, upper := true, false
	for i := range len(text) {
		ascii = ascii && text[i] < utf8.RuneSelf
		upper = upper || text[i] >= 'A' && text[i] <= 'Z'
	}
	if ascii && !upper || !ascii && !utf8.ValidString(text) {
		return text
	}
	return strings.ToLower(cases.Fold().String(text)) // cases folds each Cherokee case into the other: lower both
}
