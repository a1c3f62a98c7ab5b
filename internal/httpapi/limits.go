package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// stalled is how long a caller may take for a JSON body, or before it takes the next bytes of an answer.
const stalled = 30 * time.Second

// steadyFactor is how many times longer a caller may take for the next bytes of an NDJSON body: the time in which we don't
// read, because the stores are slow, counts against it too.
const steadyFactor = 4

func tooMany(detail string) *Refusal {
	return &Refusal{kind: kindTooMany, detail: detail, retryAfter: time.Second}
}

// rateOf is the limiter of one caller. Two requests may race to make it: one of the two is dropped, with its one token.
func (a *API) rateOf(actor string) *rate.Limiter {
	if l, ok := a.rates.Get(actor); ok {
		return l
	}
	fresh := rate.NewLimiter(rate.Limit(a.config.Rate), max(1, int(a.config.Rate)))
	if earlier, ok, _ := a.rates.PeekOrAdd(actor, fresh); ok {
		return earlier
	}
	return fresh
}

// mediaType checks the body's type against what the operation takes, and says whether it is NDJSON.
func mediaType(h http.Header, body Body) (ndjson bool, err error) {
	refused := &Refusal{kind: kindMediaType, detail: "send Content-Type: application/json"}
	if body == RecordsBody {
		refused.detail += " or application/x-ndjson"
	}
	if encodings := h.Values("Content-Encoding"); len(encodings) > 0 && !(len(encodings) == 1 && strings.EqualFold(encodings[0], "identity")) {
		return false, &Refusal{kind: kindMediaType, detail: "send the body without a Content-Encoding"}
	}
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return false, refused
	}
	name, parameters, err := mime.ParseMediaType(types[0])
	if err != nil {
		return false, refused
	}
	if charset, given := parameters["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		return false, &Refusal{kind: kindMediaType, detail: "send the body in UTF-8"}
	}
	switch {
	case name == "application/json":
		return false, nil
	case name == "application/x-ndjson" && body == RecordsBody:
		return true, nil
	default:
		return false, refused
	}
}

// arriving is a body whose sender may not stall: from the first moment on, also while a refused body is thrown away. One
// that breaks off is the sender's fault and reads as a Refusal.
type arriving struct {
	io.ReadCloser
	deadlines *http.ResponseController
	patience  time.Duration
	// steady gives each read a deadline of its own; else the body has one as a whole.
	steady  bool
	renewed time.Time
}

func (x *exchange) arriving(w http.ResponseWriter, body io.ReadCloser) *arriving {
	b := &arriving{ReadCloser: body, deadlines: http.NewResponseController(w), patience: x.patience}
	b.renew(time.Now())
	return b
}

func (b *arriving) renew(now time.Time) {
	b.renewed = now
	patience := b.patience
	if b.steady {
		patience *= steadyFactor
	}
	_ = b.deadlines.SetReadDeadline(now.Add(patience)) // unsupported by a recorder, where nothing can stall
}

func (b *arriving) Read(p []byte) (int, error) {
	if now := time.Now(); b.steady && now.Sub(b.renewed) > b.patience/32 {
		b.renew(now)
	}
	n, err := b.ReadCloser.Read(p)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil, errors.As(err, &tooLarge):
		return n, err //nolint:wrapcheck // io.Reader's contract
	case errors.Is(err, io.EOF):
		// A deadline that is left behind would end the request's context while its operation runs.
		_ = b.deadlines.SetReadDeadline(time.Time{})
		return n, err //nolint:wrapcheck // io.Reader's contract
	default:
		return n, &Refusal{kind: kindBody, detail: "the body did not arrive whole", cause: err}
	}
}

// small is how much of an answer is written without a deadline: it fits the buffers of a connection.
const small = 16 << 10

// send writes a whole answer. A caller that has gone gets nothing, and there is nobody to tell.
func (x *exchange) send(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	w.WriteHeader(status)
	if len(body) <= small {
		_, _ = w.Write(body)
		return
	}
	_, _ = x.leaving(w).Write(body)
}

// departing writes to a caller that may not stall. The server forgets the last deadline before the next request.
type departing struct {
	w         http.ResponseWriter
	deadlines *http.ResponseController
	patience  time.Duration
}

func (x *exchange) leaving(w http.ResponseWriter) *departing {
	return &departing{w: w, deadlines: http.NewResponseController(w), patience: x.patience}
}

// Write sends the bytes in pieces, each with its own deadline.
func (d *departing) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		_ = d.deadlines.SetWriteDeadline(time.Now().Add(d.patience)) // unsupported by a recorder, where nothing can stall
		n, err := d.w.Write(p[written:min(len(p), written+small)])
		written += n
		if err != nil {
			return written, err //nolint:wrapcheck // io.Writer's contract
		}
	}
	return written, nil
}
