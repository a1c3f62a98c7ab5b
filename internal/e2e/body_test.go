package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"recount/internal/fleet"
	"recount/internal/httpapi/apitest"
)

// mostMemory is what a cell may take for bodies of any size, in MB.
const mostMemory = 200

// lines is a body of about so many bytes, line after line. Every 2,000 lines the records come again.
type lines struct {
	left    int
	payload string
	pending []byte
	n       int
}

func (l *lines) Read(p []byte) (int, error) {
	if len(l.pending) == 0 {
		if l.left <= 0 {
			return 0, io.EOF
		}
		l.n++
		l.pending = fmt.Appendf(l.pending[:0], `{"tenant_id":"acme","identity_id":"alice","source":"s","source_ref":"%d","consent_basis":"c","event_type":"v","occurred_at":"2026-11-01T10:00:00Z","payload":{"x":"`, l.n%2000)
		l.pending = append(append(l.pending, l.payload...), `"}}`+"\n"...)
		l.left -= len(l.pending)
	}
	n := copy(p, l.pending)
	l.pending = l.pending[n:]
	return n, nil
}

// endless is one line of so many bytes that never ends.
func endless(size int64) io.Reader {
	return io.MultiReader(strings.NewReader(`{"tenant_id":"acme","identity_id":"`), io.LimitReader(letters{}, size))
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'y'
	}
	return len(p), nil
}

// speaking is a client that speaks one version of HTTP, and holds answers against the document.
func speaking(t *testing.T, version string) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	p.SetHTTP1(version == "HTTP/1.1")
	p.SetUnencryptedHTTP2(version == "h2c")
	return &http.Client{Transport: apitest.Transport(t, &http.Transport{Protocols: p})}
}

var ndjson = map[string]string{"Content-Type": "application/x-ndjson"}

func (w *world) events() string { return w.Ingest.URL + "/v1/intent/events" }

func TestABodyOfAGigabyteIsTakenInInBoundedMemory(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 1 << 27
	}
	for _, version := range []string{"HTTP/1.1", "h2c"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := start(t, only("ingest"))
			body := &lines{left: size, payload: strings.Repeat("y", 200<<10)}
			r, err := try(speaking(t, version), http.MethodPost, w.events(), body, ndjson)
			if err != nil || r.Code != http.StatusOK || !bytes.Contains(r.Body, fmt.Appendf(nil, `"accepted":%d,"duplicates":%d,`, min(body.n, 2000), body.n-min(body.n, 2000))) ||
				!bytes.Contains(r.Body, []byte(`"rejected_total":0`)) {
				t.Fatalf("%v %d %s, %d lines", err, r.Code, r.Body, body.n)
			}
			checkPeak(t, w.Ingest)
		})
	}
}

func TestManySmallLinesAndALineWithoutAnEndTakeBoundedMemoryToo(t *testing.T) {
	t.Parallel()
	w := start(t, only("ingest"))
	body := &lines{left: 16 << 20}
	if r := w.do(http.MethodPost, w.events(), body, ndjson); r.Code != http.StatusOK || !bytes.Contains(r.Body, []byte(`"rejected_total":0`)) {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	if r := w.do(http.MethodPost, w.events(), endless(1<<29), ndjson); r.Code != http.StatusOK || !bytes.Contains(r.Body, []byte(`"rejected_total":1`)) {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	checkPeak(t, w.Ingest)
}

func TestManyLargeBodiesAtATimeTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	w := start(t, only("ingest"))
	client := speaking(t, "h2c")
	inParallel(32, make([]struct{}, 32), func(struct{}) reply {
		r, err := try(client, http.MethodPost, w.events(), &lines{left: 8 << 20, payload: strings.Repeat("y", 900<<10)}, ndjson)
		if err != nil {
			t.Error(err)
		}
		return r
	}, func(r reply) {
		if r.Code != http.StatusOK && r.Code != http.StatusServiceUnavailable && r.Code != http.StatusTooManyRequests {
			t.Errorf("%d %s", r.Code, r.Body)
		}
	})
	checkPeak(t, w.Ingest)
}

func TestABodyThatBreaksOffKeepsWhatWasAcknowledgedAndNothingIsHeldUp(t *testing.T) {
	w := start(t, only("ingest"))
	sent, body := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := try(&http.Client{}, http.MethodPost, w.events(), sent, ndjson)
		ended <- err
	}()
	if _, err := io.Copy(body, &lines{left: 4 << 20, payload: "x"}); err != nil {
		t.Fatal(err)
	}
	_ = body.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-ended; err == nil {
		t.Error("an answer to half a body")
	}
	if r := w.do(http.MethodPost, w.events(), &lines{left: 1 << 10}, ndjson); r.Code != http.StatusOK {
		t.Errorf("the next body: %d %s", r.Code, r.Body)
	}
	// What had arrived of the half body is still written, and an erasure in the midst of it only takes what is there.
	eventually(t, "it is written for ever", func() bool {
		return w.ask(w.Ingest, "delete", "acme", "alice").Code == http.StatusOK && w.held("acme", "alice") == 0
	})
}

func checkPeak(t *testing.T, s *fleet.Service) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Logf("a process's memory can't be read here: %v", err)
		return
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil || kb > mostMemory<<10 {
				t.Errorf("%d kB at the peak, %v", kb, err)
			}
			t.Logf("%d MB at the peak", kb>>10)
			return
		}
	}
	t.Error("no VmHWM")
}
