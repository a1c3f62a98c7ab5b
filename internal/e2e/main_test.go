// Package e2e proves the whole: real binaries as processes, real ports, real files. Every answer is held against the
// OpenAPI document.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/fleet"
	"recount/internal/httpapi/apitest"
	"recount/internal/stores/firestore/firestoretest"
)

var binaries string

func TestMain(m *testing.M) {
	code := 1
	defer func() { os.Exit(code) }()
	dir, err := os.MkdirTemp("", "recount-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-o", dir+"/", "recount/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if raceFor > 0 { // make race: the services themselves look for races
		build.Args = slices.Insert(build.Args, 2, "-race")
		build.Env = os.Environ()
	}
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building: %v\n%s", err, out)
		return
	}
	binaries = dir
	code = firestoretest.Run(m)
}

// world is a fleet and a client that holds every answer against the document.
type world struct {
	t      *testing.T
	dir    string
	client *http.Client
	*fleet.Fleet
}

func start(t *testing.T, change ...func(*fleet.Options)) *world {
	t.Helper()
	o := fleet.Options{Bin: binaries, Dir: t.TempDir()}
	for _, c := range change {
		c(&o)
	}
	f, err := fleet.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	return &world{t: t, dir: o.Dir, Fleet: f, client: &http.Client{Transport: apitest.Transport(t, nil), Timeout: time.Minute}}
}

func own(service string, env map[string]string) func(*fleet.Options) {
	return func(o *fleet.Options) {
		if o.Own == nil {
			o.Own = map[string]map[string]string{}
		}
		o.Own[service] = env
	}
}

func everywhere(env map[string]string) func(*fleet.Options) {
	return func(o *fleet.Options) { o.Env = env }
}

func only(service string) func(*fleet.Options) {
	return func(o *fleet.Options) {
		for _, s := range []string{"coordinator", "ingest", "graph", "causal"} {
			if s != service {
				o.Without = append(o.Without, s)
			}
		}
	}
}

// reply is an answer, with what tests look at.
type reply struct {
	Code   int
	Header http.Header
	Body   []byte
	Answer struct {
		Status   any // a word, and in a problem document a number
		Type     string
		Receipts []receipt
		Results  []struct{ Status string }
	}
}

type receipt struct {
	Cell, Store, Backend, Status, Detail string
	Before, Deleted, Remaining, Count    *int64
	Suppressed, Derived                  *int64
	Sticky                               bool
	Rows                                 []map[string]any
	Scrubbed                             []string
	NextPageToken                        string  `json:"next_page_token"`
	RecoverableUntil                     *string `json:"recoverable_until"`
}

func (w *world) do(method, url string, body io.Reader, header map[string]string) reply {
	w.t.Helper()
	r, err := w.try(method, url, body, header)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) try(method, url string, body io.Reader, header map[string]string) (reply, error) {
	return try(w.client, method, url, body, header)
}

func try(client *http.Client, method, url string, body io.Reader, header map[string]string) (r reply, err error) {
	request, err := http.NewRequestWithContext(context.Background(), method, url, body)
	if err != nil {
		return r, err
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return r, err
	}
	defer func() { _ = response.Body.Close() }()
	r.Code, r.Header = response.StatusCode, response.Header
	if r.Body, err = io.ReadAll(response.Body); err != nil {
		return r, err
	}
	if strings.Contains(response.Header.Get("Content-Type"), "json") {
		err = json.Unmarshal(r.Body, &r.Answer)
	}
	return r, err
}

var jsonBody = map[string]string{"Content-Type": "application/json"}

// ask posts one of the body forms about a subject.
func (w *world) ask(s *fleet.Service, verb, tenant, identity string) reply {
	w.t.Helper()
	return w.do(http.MethodPost, s.URL+"/v1/intent/subject:"+verb, encode(w.t, map[string]string{"tenant_id": tenant, "identity_id": identity}), jsonBody)
}

// later is ask from a goroutine of its own. Where there is no answer, that is an error of the test and an empty reply.
func (w *world) later(s *fleet.Service, verb, tenant, identity string) <-chan reply {
	answered := make(chan reply, 1)
	body := encode(w.t, map[string]string{"tenant_id": tenant, "identity_id": identity})
	go func() {
		r, err := w.try(http.MethodPost, s.URL+"/v1/intent/subject:"+verb, body, jsonBody)
		if err != nil {
			w.t.Error(err)
		}
		answered <- r
	}()
	return answered
}

func encode(t testing.TB, v any) io.Reader {
	t.Helper()
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(encoded)
}

// kind is a kind of record: the cell that takes it in, where, and its own fields.
type kind struct {
	service func(*fleet.Fleet) *fleet.Service
	path    string
	own     map[string]any
}

var kinds = []kind{
	{func(f *fleet.Fleet) *fleet.Service { return f.Ingest }, "/v1/intent/events", map[string]any{"event_type": "v", "occurred_at": "2026-11-01T10:00:00Z", "payload": map[string]any{"n": 3}}},
	{func(f *fleet.Fleet) *fleet.Service { return f.Coordinator }, "/v1/intent/scores", map[string]any{"model_version": "m", "score": 0.5}},
	{func(f *fleet.Fleet) *fleet.Service { return f.Graph }, "/v1/intent/graph/edges", map[string]any{"related_id": "somebody-else", "relation": "knows"}},
	{func(f *fleet.Fleet) *fleet.Service { return f.Causal }, "/v1/intent/holdouts", map[string]any{"experiment": "e", "identity_kind": "deterministic"}},
	{func(f *fleet.Fleet) *fleet.Service { return f.Causal }, "/v1/intent/outcomes", map[string]any{"experiment": "e", "metric": "m", "value": 1}},
}

// write gives each person a row of every kind.
func (w *world) write(tenant string, people ...string) {
	w.t.Helper()
	for _, k := range kinds {
		var body bytes.Buffer
		for _, p := range people {
			record := map[string]any{"tenant_id": tenant, "identity_id": p, "source": "test", "source_ref": "ref-" + p, "consent_basis": "consent"}
			for name, value := range k.own {
				record[name] = value
			}
			if err := json.NewEncoder(&body).Encode(record); err != nil {
				w.t.Fatal(err)
			}
		}
		r := w.do(http.MethodPost, k.service(w.Fleet).URL+k.path, &body, map[string]string{"Content-Type": "application/x-ndjson"})
		if r.Code != http.StatusOK || !strings.Contains(string(r.Body), `"rejected_total":0`) {
			w.t.Fatalf("%s: %d %s", k.path, r.Code, r.Body)
		}
	}
}

// held is how many rows all the cells hold about a subject.
func (w *world) held(tenant, identity string) (n int64) {
	w.t.Helper()
	for _, s := range w.All() {
		if !s.Running() {
			continue
		}
		for _, r := range w.ask(s, "count", tenant, identity).Answer.Receipts {
			if r.Count == nil {
				w.t.Fatalf("%s could not count: %s", r.Store, r.Detail)
			}
			n += *r.Count
		}
	}
	return n
}

// filesWith are the files below the folder that hold one of the texts.
func filesWith(t *testing.T, dir string, texts ...string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(content, []byte(text)) {
				found = append(found, text+" in "+path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func statuses(receipts []receipt) map[string]string {
	out := map[string]string{}
	for _, r := range receipts {
		out[r.Cell+"/"+r.Store] = strings.TrimSuffix(r.Status+" "+r.Detail, " ")
	}
	return out
}
