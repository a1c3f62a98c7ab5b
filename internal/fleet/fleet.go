// Package fleet starts the four services as processes on loopback, for the demo, the benchmarks and the end-to-end
// tests: real binaries, real ports, real files.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// readyWithin is how long a service may take from its start to its first ready answer.
const readyWithin = 20 * time.Second

// Options say where the binaries and the files are.
type Options struct {
	Bin       string                       // folder of the built binaries
	Dir       string                       // data folders and logs go below it
	FirstPort int                          // coordinator, ingest, graph and causal listen on four ports from here; 0 picks free ones
	Env       map[string]string            // for every service, over the defaults
	Own       map[string]map[string]string // by service: over Env
	Audience  bool                         // each service's AUTH_AUDIENCE is its own URL
	Without   []string                     // services that are not started; the coordinator still has their URL
}

// Fleet is the four services.
type Fleet struct {
	Coordinator, Ingest, Graph, Causal *Service
}

// Service is one process, which may be stopped, killed and started again on the same port and data.
type Service struct {
	Name    string
	URL     string
	DataDir string
	LogFile string
	binary  string
	env     []string
	cmd     *exec.Cmd
	done    chan struct{}
}

// Start starts the services and waits until each is ready. On an error nothing is left running.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	names := []string{"coordinator", "ingest", "graph", "causal"}
	services := make(map[string]*Service, len(names))
	for i, name := range names {
		addr, err := address(o.FirstPort, i)
		if err != nil {
			return nil, err
		}
		services[name] = &Service{
			Name: name, URL: "http://" + addr, DataDir: filepath.Join(o.Dir, name),
			LogFile: filepath.Join(o.Dir, "logs", name+".log"), binary: filepath.Join(o.Bin, "cell"),
			env: []string{"AUTH_MODE=off", "LISTEN_ADDR=" + addr, "DATA_DIR=" + filepath.Join(o.Dir, name), "CELL=" + name},
		}
	}
	coordinator := services["coordinator"]
	coordinator.binary = filepath.Join(o.Bin, "coordinator")
	coordinator.env = append(coordinator.env[:3:3], "INTENT_INGEST_URL="+services["ingest"].URL,
		"INTENT_GRAPH_URL="+services["graph"].URL, "INTENT_CAUSAL_URL="+services["causal"].URL)
	f := &Fleet{Coordinator: coordinator, Ingest: services["ingest"], Graph: services["graph"], Causal: services["causal"]}
	for _, s := range f.All() {
		if o.Audience {
			s.env = append(s.env, "AUTH_AUDIENCE="+s.URL)
		}
		s.env = append(append(s.env, pairs(o.Env)...), pairs(o.Own[s.Name])...)
		if slices.Contains(o.Without, s.Name) {
			continue
		}
		if err := s.launch(); err != nil {
			f.Stop()
			return nil, err
		}
	}
	for _, s := range f.All() {
		if slices.Contains(o.Without, s.Name) {
			continue
		}
		err := s.WaitReady(ctx)
		if err == nil && o.FirstPort != 0 {
			err = s.stays(200 * time.Millisecond) // another fleet on the same ports answers for one that is just ending
		}
		if err != nil {
			f.Stop()
			return nil, err
		}
	}
	return f, nil
}

func address(first, i int) (string, error) {
	if first != 0 {
		addr := fmt.Sprintf("127.0.0.1:%d", first+i)
		l, err := net.Listen("tcp", addr) //nolint:noctx // closed at once: it only asks whether the port is free
		if err != nil {
			return "", fmt.Errorf("port %d is taken (by another make up?): stop what listens there, or take four others with FIRST_PORT=9080", first+i)
		}
		return addr, l.Close()
	}
	return FreeAddress()
}

// FreeAddress is a loopback address that nobody listens on, below the ports that systems hand out by themselves: such a
// port could become the other end of anybody's connection while its service is down.
func FreeAddress() (string, error) {
	const first, ports, tries = 10_000, 20_000, 100
	var err error
	for range tries {
		addr := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(ports)) //nolint:gosec // a port, no secret
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil { //nolint:noctx // closed at once: it only finds a free port
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("finding a free port: %w", err)
}

func pairs(env map[string]string) []string {
	var out []string
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	return out
}

// All are the services, coordinator first.
func (f *Fleet) All() []*Service { return []*Service{f.Coordinator, f.Ingest, f.Graph, f.Causal} }

// CellsEnv is the RECOUNT_CELLS of the command line.
func (f *Fleet) CellsEnv() string {
	return "ingest=" + f.Ingest.URL + ",graph=" + f.Graph.URL + ",causal=" + f.Causal.URL
}

// Stop stops every service that runs.
func (f *Fleet) Stop() {
	for _, s := range f.All() {
		_ = s.Stop()
	}
}

// launch starts the process on a clean environment.
func (s *Service) launch() error {
	if err := os.MkdirAll(filepath.Dir(s.LogFile), 0o750); err != nil {
		return fmt.Errorf("making the log folder: %w", err)
	}
	log, err := os.OpenFile(s.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", s.Name, err)
	}
	defer func() { _ = log.Close() }()
	s.cmd = exec.Command(s.binary) //nolint:gosec,noctx // our own binary; it is stopped by Stop and Kill
	s.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR")}, s.env...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is ours to pass on
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", s.Name, err)
	}
	done := make(chan struct{})
	s.done = done
	go func() {
		_ = s.cmd.Wait()
		close(done)
	}()
	return nil
}

// Twin starts a second instance of the service, as a platform does, on an address of its own, and waits until it is ready.
// They share the data folder, which of stores on GCP holds nothing but the keys of development.
func (s *Service) Twin(ctx context.Context) (*Service, error) {
	addr, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	twin := &Service{
		Name: s.Name, URL: "http://" + addr, DataDir: s.DataDir, LogFile: strings.TrimSuffix(s.LogFile, ".log") + "-twin.log", binary: s.binary,
		env: append(slices.Clone(s.env), "LISTEN_ADDR="+addr), // the last of a name counts
	}
	return twin, twin.StartAgain(ctx)
}

// StartAgain starts a stopped service and waits until it is ready.
func (s *Service) StartAgain(ctx context.Context) error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.WaitReady(ctx)
}

// WaitReady waits for a 200 of /ready. The error ends with the service's last log lines.
func (s *Service) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		if s.is(ctx, "/ready") && s.Running() {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("%s ended at its start:\n%s", s.Name, s.lastLog())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s:\n%s", s.Name, readyWithin, s.lastLog())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stays reports a service that ends within the time.
func (s *Service) stays(d time.Duration) error {
	select {
	case <-s.done:
		return fmt.Errorf("%s ended at its start:\n%s", s.Name, s.lastLog())
	case <-time.After(d):
		return nil
	}
}

func (s *Service) is(ctx context.Context, path string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (s *Service) lastLog() string {
	log, err := os.ReadFile(s.LogFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// Running reports whether the process lives.
func (s *Service) Running() bool {
	if s.done == nil {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// PID is the process id of a running service.
func (s *Service) PID() int { return s.cmd.Process.Pid }

// Kill ends the process as a crash would (kill -9) and waits for its end.
func (s *Service) Kill() error { return s.signal(syscall.SIGKILL) }

// Stop asks the process to stop (SIGTERM) and waits for its end.
func (s *Service) Stop() error { return s.signal(syscall.SIGTERM) }

func (s *Service) signal(sig syscall.Signal) error {
	if !s.Running() {
		return nil
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", s.Name, err)
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(15 * time.Second):
		_ = s.cmd.Process.Kill()
		return fmt.Errorf("%s did not stop within 15 s", s.Name)
	}
}
