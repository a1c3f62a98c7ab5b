// Command demo shows the main job with nothing to configure: four services on loopback, a few thousand synthetic
// records, one person erased, the receipts, and a search for anything left. `make demo` builds and runs it; with -up
// it leaves the services running on ports 8080 to 8083.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"recount/internal/fleet"
)

const (
	tenant   = "acme"
	identity = "person-email:u0042@example.com"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	up := flag.Bool("up", false, "start the services on ports 8080 to 8083, load the sample, and leave them running")
	bin := flag.String("bin", "bin", "folder of the built binaries")
	first := flag.Int("first-port", 8080, "with -up: the coordinator's port; the cells take the next three")
	sample := flag.String("sample", "demo/sample", "folder of the sample records")
	data := flag.String("data", "", "folder for data and logs: default a fresh temporary one, or ./data with -up")
	flag.Parse()

	dir, cleanUp, err := dataFolder(*data, *up)
	if err != nil {
		return err
	}
	defer cleanUp()
	options := fleet.Options{Bin: *bin, Dir: dir}
	if *up {
		options.FirstPort = *first
		options.Own = map[string]map[string]string{"coordinator": given("CASCADE_EXTRA_PEERS", "CASCADE_EXPECTED_STORES", "ERASURE_CALLBACK_HOSTS", "ERASURE_CALLBACK_SECRET", "OPENDSR_DOMAIN", "OPENDSR_IDENTITIES")}
	}
	d := &demo{out: out, dir: dir, bin: *bin}
	d.step("Starting four services on loopback, with embedded stores")
	started := time.Now()
	if d.fleet, err = fleet.Start(ctx, options); err != nil {
		return err
	}
	defer d.fleet.Stop()
	for _, s := range d.fleet.All() {
		d.say("%-12s %s", s.Name, s.URL)
	}
	d.say("ready after %d ms", time.Since(started).Milliseconds())
	d.sample = *sample
	d.step("Loading the sample")
	if _, err := d.load(ctx); err != nil {
		return err
	}
	if *up {
		return d.stayUp(ctx)
	}
	return d.erase(ctx)
}

// given are the variables of that name that are set: cells of one's own that the coordinator is to erase from too.
func given(names ...string) map[string]string {
	out := make(map[string]string)
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			out[name] = value
		}
	}
	return out
}

func dataFolder(named string, up bool) (dir string, cleanUp func(), err error) {
	if named == "" && up {
		named = "data"
	}
	if named != "" {
		dir, err = filepath.Abs(named)
		return dir, func() {}, err
	}
	if dir, err = os.MkdirTemp("", "recount-demo-"); err != nil {
		return "", nil, fmt.Errorf("making a data folder: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

type demo struct {
	out      io.Writer
	dir, bin string
	sample   string
	fleet    *fleet.Fleet
	steps    int
}

func (d *demo) step(title string) {
	d.steps++
	_, _ = fmt.Fprintf(d.out, "\n%d. %s\n", d.steps, title)
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, "   "+format+"\n", args...)
}

// taken is what became of records.
type taken struct {
	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"`
	Suppressed int `json:"skipped_suppressed"`
	Rejected   int `json:"rejected_total"`
}

// load sends each file of the sample to the cell that takes it in, and answers what became of all.
func (d *demo) load(ctx context.Context) (sum taken, err error) {
	f := d.fleet
	for _, to := range []struct{ file, url string }{
		{"events", f.Ingest.URL + "/v1/intent/events"},
		{"scores", f.Coordinator.URL + "/v1/intent/scores"},
		{"edges", f.Graph.URL + "/v1/intent/graph/edges"},
		{"holdouts", f.Causal.URL + "/v1/intent/holdouts"},
		{"outcomes", f.Causal.URL + "/v1/intent/outcomes"},
	} {
		body, err := os.Open(filepath.Join(d.sample, to.file+".ndjson"))
		if err != nil {
			return sum, fmt.Errorf("opening the sample: %w", err)
		}
		var answer taken
		err = post(ctx, to.url, "application/x-ndjson", body, &answer)
		_ = body.Close()
		if err != nil {
			return sum, fmt.Errorf("loading %s: %w", to.file, err)
		}
		d.say("%-9s %5d accepted, %4d duplicates, %3d skipped_suppressed, %d rejected", to.file, answer.Accepted, answer.Duplicates, answer.Suppressed, answer.Rejected)
		if answer.Rejected > 0 {
			return sum, fmt.Errorf("the sample of %s has rejected lines", to.file)
		}
		sum.Accepted, sum.Duplicates, sum.Suppressed = sum.Accepted+answer.Accepted, sum.Duplicates+answer.Duplicates, sum.Suppressed+answer.Suppressed
	}
	return sum, nil
}

func (d *demo) stayUp(ctx context.Context) error {
	d.step("Left running: stop with Ctrl-C; data and logs are in " + d.dir + " (remove it to start afresh)")
	cells := d.fleet.CellsEnv()
	if extra := os.Getenv("CASCADE_EXTRA_PEERS"); extra != "" {
		cells += "," + extra
	}
	d.say("export RECOUNT_COORDINATOR=%s RECOUNT_CELLS=%s RECOUNT_PRINCIPAL=dpo@acme.example", d.fleet.Coordinator.URL, cells)
	d.say("try: printf %%s '%s' | %s/recount erase --tenant %s --identity-file -", identity, d.bin, tenant)
	<-ctx.Done()
	return nil
}

func (d *demo) erase(ctx context.Context) error {
	d.step(fmt.Sprintf("What the four services hold about one subject of tenant %q", tenant))
	before, err := d.count(ctx)
	if err != nil {
		return err
	}
	if before == 0 {
		return errors.New("the sample holds nothing about the subject: there is nothing to show")
	}
	d.step("Erasing the subject: count, delete, recount, in every store")
	if err := d.recount(ctx, "erase", "--tenant", tenant, "--identity-file", "-"); err != nil {
		return err
	}
	d.step("Killing the graph cell (kill -9) and starting it again: it replays its journal")
	if err := errors.Join(d.fleet.Graph.Kill(), d.fleet.Graph.StartAgain(ctx)); err != nil {
		return err
	}
	after, err := d.count(ctx)
	if err != nil {
		return err
	}
	d.step("Searching every file of the data and log folders for the subject's id")
	files, found, err := d.search()
	if err != nil {
		return err
	}
	for _, name := range found {
		d.say("FOUND in %s", name)
	}
	d.say("%d files searched, %d hold the id", files, len(found))
	if after != 0 || len(found) != 0 {
		return fmt.Errorf("VERDICT: NOT ERASED: %d rows and %d files still hold the subject", after, len(found))
	}
	kept, err := d.comesBack(ctx)
	if err != nil {
		return err
	}
	report, err := d.request(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(d.out, "\nVERDICT: erased, and it stays so. %d rows before, 0 counted after a delete and a restart, 0 bytes of the id in %d files;\n"+
		"         %d records kept out of a second import, 1 let in again by name; one request approved by two, certified, and verified offline.\n"+
		"         Its report: %s\n", before, files, kept, report)
	return nil
}

// recount runs the command line tool, with the identity on its standard input.
func (d *demo) recount(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, "recount"), args...) //nolint:gosec // our own binary
	cmd.Env = append(os.Environ(), "RECOUNT_COORDINATOR="+d.fleet.Coordinator.URL, "RECOUNT_CELLS="+d.fleet.CellsEnv())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(identity), d.out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("recount %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// count asks every cell, and answers the sum over all stores.
func (d *demo) count(ctx context.Context) (total int64, err error) {
	body, err := json.Marshal(map[string]string{"tenant_id": tenant, "identity_id": identity})
	if err != nil {
		return 0, fmt.Errorf("encoding: %w", err)
	}
	for _, s := range d.fleet.All() {
		var answer struct {
			Receipts []struct {
				Cell, Store, Backend string
				Count                *int64
			}
		}
		if err := post(ctx, s.URL+"/v1/intent/subject:count", "application/json", bytes.NewReader(body), &answer); err != nil {
			return 0, fmt.Errorf("counting at %s: %w", s.Name, err)
		}
		for _, r := range answer.Receipts {
			if r.Count == nil {
				return 0, fmt.Errorf("%s could not count %s", r.Cell, r.Store)
			}
			total += *r.Count
			d.say("%-8s %-20s %-8s %4d rows", r.Cell, r.Store, r.Backend, *r.Count)
		}
	}
	return total, nil
}

// search looks for the identity's bytes in every file below the folder, however it might be escaped.
func (d *demo) search() (files int, found []string, err error) {
	needles := [][]byte{[]byte(identity), []byte(strings.ReplaceAll(identity, "@", "%40")), []byte("u0042@example.com")}
	err = filepath.WalkDir(d.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // below the demo's own folder
		if err != nil {
			return err
		}
		files++
		for _, needle := range needles {
			if bytes.Contains(content, needle) {
				found = append(found, path)
				break
			}
		}
		return nil
	})
	return files, found, err
}

func post(ctx context.Context, url, contentType string, body io.Reader, answer any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		problem, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("%s: %s", response.Status, problem)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
