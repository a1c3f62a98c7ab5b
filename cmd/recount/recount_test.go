package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"recount/internal/subject"
	"recount/internal/wire"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"recount": main})
}

type fleetKey struct{}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			f := newFleet()
			env.Defer(f.close)
			env.Values[fleetKey{}] = f
			coordinator, cells := f.addresses()
			env.Setenv("RECOUNT_COORDINATOR", coordinator)
			env.Setenv("RECOUNT_CELLS", cells)
			for _, s := range f.services {
				env.Setenv(strings.ToUpper(s.name), s.server.URL)
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"seed": seed, "refuse": refuse, "break": breakTable, "lie": tell, "down": down, "asks-for": asksFor, "suspect": suspects,
			"until": until, "exits": exits, "asked": asked, "calm": calm, "people": people,
		},
	})
}

func fleetOf(ts *testscript.TestScript) *fleet {
	f, ok := ts.Value(fleetKey{}).(*fleet)
	if !ok {
		ts.Fatalf("no fleet")
	}
	return f
}

// seed TENANT IDENTITY TABLE=N... puts rows in.
func seed(ts *testscript.TestScript, _ bool, args []string) {
	who, err := subject.New(args[0], args[1])
	ts.Check(err)
	for _, pair := range args[2:] {
		name, n, _ := strings.Cut(pair, "=")
		rows, err := strconv.Atoi(n)
		ts.Check(err)
		t := fleetOf(ts).table(name)
		t.change(func() { t.rows[who] = rows })
	}
}

// refuse TABLE N lets the next N deletes be refused as not yet.
func refuse(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	t := fleetOf(ts).table(args[0])
	t.change(func() { t.refuse = n })
}

// until TABLE TIME says until when the platform keeps deleted rows.
func until(ts *testscript.TestScript, _ bool, args []string) {
	at, err := time.Parse(time.RFC3339, args[1])
	ts.Check(err)
	t := fleetOf(ts).table(args[0])
	t.change(func() { t.until = at })
}

// break TABLE lets it answer nothing but errors.
func breakTable(ts *testscript.TestScript, _ bool, args []string) {
	t := fleetOf(ts).table(args[0])
	t.change(func() { t.broken = true })
}

// down SERVICE breaks off every connection.
func down(ts *testscript.TestScript, _ bool, args []string) {
	s := fleetOf(ts).find(args[0])
	s.change(func() { s.down = true })
}

// asks-for SERVICE TOKEN lets it require a token.
func asksFor(ts *testscript.TestScript, _ bool, args []string) {
	s := fleetOf(ts).find(args[0])
	s.change(func() { s.token = args[1] })
}

// suspect SERVICE TABLE COLUMN lets its coverage find a column.
func suspects(ts *testscript.TestScript, _ bool, args []string) {
	s := fleetOf(ts).find(args[0])
	s.change(func() { s.suspects = append(s.suspects, wire.Suspect{Table: args[1], Column: args[2]}) })
}

// lie SERVICE KIND lets it answer dishonestly.
func tell(ts *testscript.TestScript, _ bool, args []string) {
	told, known := lies[args[1]]
	if !known {
		ts.Fatalf("no such lie: %s", args[1])
	}
	s := fleetOf(ts).find(args[0])
	s.change(func() { s.lie = told })
}

// exits CODE COMMAND... runs a command and wants that exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// asked SERVICE N PATTERN waits until at least N requests matched; ! asked SERVICE PATTERN wants none.
func asked(ts *testscript.TestScript, neg bool, args []string) {
	s := fleetOf(ts).find(args[0])
	want, pattern := 1, args[len(args)-1]
	if len(args) == 3 {
		var err error
		want, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	matches := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, one := range s.asked {
			if regexp.MustCompile(pattern).MatchString(one) {
				n++
			}
		}
		return n
	}
	if neg {
		if matches() > 0 {
			ts.Fatalf("it was asked")
		}
		return
	}
	for end := time.Now().Add(10 * time.Second); matches() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("asked %d times, want %d", matches(), want)
		}
	}
}

var volatile = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// calm FILE writes the last standard output to a file, without what changes from run to run.
func calm(ts *testscript.TestScript, _ bool, args []string) {
	out := volatile.ReplaceAllString(ts.ReadFile("stdout"), "REQUEST")
	out = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).ReplaceAllString(out, "URL")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(out), 0o600))
}

// people FILE N writes a file of N identities.
func people(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "person-%d@x.io\n", i)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(out.String()), 0o600))
}

func replacing(old, fresh string) lie {
	return func(_ http.ResponseWriter, _ *http.Request, body []byte) []byte {
		return []byte(strings.ReplaceAll(string(body), old, fresh))
	}
}

func saying(code int, kind, text string) lie {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) []byte {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
		return nil
	}
}

// lies are what services have been seen to answer, or might.
var lies = map[string]lie{
	"honest":            nil,
	"rows-remain":       replacing(`"remaining":0`, `"remaining":2`),
	"remaining-null":    replacing(`"remaining":0`, `"remaining":null`),
	"remaining-missing": replacing(`"remaining":0,`, ``),
	"remaining-string":  replacing(`"remaining":0`, `"remaining":"0"`),
	"remaining-float":   replacing(`"remaining":0`, `"remaining":0.0`),
	"before-missing":    replacing(`"before":0,`, ``),
	"loud-status":       replacing(`"status":"erased"`, `"status":"ERASED"`),
	"other-tenant":      replacing(`"tenant_id":"acme"`, `"tenant_id":"globex"`),
	"other-operation":   replacing(`"operation":"erase"`, `"operation":"count"`),
	"no-ref":            replacing(`"subject_ref":"`, `"subject_ref":"x`),
	"no-receipts":       regexpLie(`"receipts":\[.*\],"generated_at"`, `"receipts":[],"generated_at"`),
	"one-cell":          regexpLie(`,\{"cell":"causal"[^}]*\}`, ``),
	"same-store":        replacing(`"store":"outcomes"`, `"store":"holdout_assignments"`),
	"escape-codes":      replacing(`"store":"outcomes"`, `"store":"\u001b[2Joutcomes"`),
	"twice":             func(_ http.ResponseWriter, _ *http.Request, body []byte) []byte { return append(body, body...) },
	"variant":           replacing(`"remaining":0`, `"remaining":0,"Remaining":3`),
	"other-request":     regexpLie(`"request_id":"[^"]*"`, `"request_id":"00000000"`),
	"failed-top":        regexpLie(`"operation":"erase","status":"erased"`, `"operation":"erase","status":"failed"`),
	"html":              saying(http.StatusOK, "text/html", "<html>all erased</html>"),
	"empty-object":      saying(http.StatusOK, "application/json", "{}"),
	"null":              saying(http.StatusOK, "application/json", "null"),
	"redirect":          saying(http.StatusFound, "text/html", ""),
	"made":              saying(http.StatusCreated, "application/json", `{"status":"erased"}`),
	"forbidden":         saying(http.StatusForbidden, "application/problem+json", `{"title":"no"}`),
	"loud-problem":      saying(http.StatusTeapot, "application/problem+json", "{\"title\":\"no \\u001b[31mway\"}"),
	"as-200": func(w http.ResponseWriter, _ *http.Request, body []byte) []byte {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body)
		return nil
	},
	"busy": func(w http.ResponseWriter, _ *http.Request, _ []byte) []byte {
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable)
		return nil
	},
	"half": func(w http.ResponseWriter, _ *http.Request, body []byte) []byte {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	},
	"hang": func(_ http.ResponseWriter, r *http.Request, _ []byte) []byte {
		<-r.Context().Done()
		return nil
	},
	"hang-once-erased": func(_ http.ResponseWriter, r *http.Request, body []byte) []byte {
		if strings.Contains(string(body), `"pending"`) {
			return body
		}
		<-r.Context().Done()
		return nil
	},
	"endless-pages": endless(),
	"lost-rows":     regexpLie(`"count":\d+`, `"count":5000`),
	"restless-ref":  restless(),
}

// endless answers the first page over and over, whatever the token.
func endless() lie {
	var page []byte
	token, request := regexpLie(`"next_page_token":"[^"]*"`, `"next_page_token":"again"`), regexp.MustCompile(`"request_id":"[^"]*"`)
	return func(w http.ResponseWriter, r *http.Request, body []byte) []byte {
		if page == nil {
			page = token(w, r, body)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(request.ReplaceAll(page, []byte(`"request_id":"`+r.Header.Get("X-Request-ID")+`"`)))
		return nil
	}
}

// restless calls one person by another reference each time.
func restless() lie {
	times := 0
	return func(w http.ResponseWriter, r *http.Request, body []byte) []byte {
		times++
		return regexpLie(`"subject_ref":"[^"]*"`, fmt.Sprintf(`"subject_ref":"%064d"`, times))(w, r, body)
	}
}

func regexpLie(pattern, fresh string) lie {
	expression := regexp.MustCompile(pattern)
	return func(_ http.ResponseWriter, _ *http.Request, body []byte) []byte {
		return expression.ReplaceAll(body, []byte(fresh))
	}
}
