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
)

// lines is a body of so many bytes, line after line, some of them new and most of them duplicates.
type lines struct {
	left    int
	pending []byte
	n       int
}

func (l *lines) Read(p []byte) (int, error) {
	if len(l.pending) == 0 {
		if l.left <= 0 {
			return 0, io.EOF
		}
		l.n++
		l.pending = fmt.Appendf(nil, `{"tenant_id":"acme","identity_id":"alice","source":"s","source_ref":"%d","consent_basis":"c","event_type":"v","occurred_at":"2026-11-01T10:00:00Z","payload":{"x":%q}}`+"\n",
			l.n%2000, strings.Repeat("y", 60<<10))
		l.left -= len(l.pending)
	}
	n := copy(p, l.pending)
	l.pending = l.pending[n:]
	return n, nil
}

func TestABodyOfAGigabyteIsTakenInInBoundedMemory(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 1 << 27
	}
	w := start(t, only("ingest"))
	for name, protocols := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"h2c":      func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			p := new(http.Protocols)
			protocols(p)
			client := &http.Client{Transport: &http.Transport{Protocols: p}}
			body := &lines{left: size / 2}
			r, err := try(client, http.MethodPost, w.Ingest.URL+"/v1/intent/events", body, map[string]string{"Content-Type": "application/x-ndjson"})
			if err != nil || r.Code != http.StatusOK || !bytes.Contains(r.Body, []byte(`"rejected_total":0`)) {
				t.Fatalf("%v %d %s", err, r.Code, r.Body)
			}
		})
	}
	if peak := peakMB(t, w.Ingest.PID()); peak > 250 {
		t.Errorf("%d MB at the peak", peak)
	} else {
		t.Logf("%d MB at the peak", peak)
	}
}

func peakMB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here to read a process's memory from")
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kb / 1024
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
