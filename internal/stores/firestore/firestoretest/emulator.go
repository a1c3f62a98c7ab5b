// Package firestoretest gives tests Google's own Firestore emulator, and a proxy in front of it that fails in the ways
// that the emulator can't.
package firestoretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// HowToInstall is what a skipped or failed test says.
const HowToInstall = "the Firestore emulator is missing: install Java 11 or later and " +
	"`gcloud components install cloud-firestore-emulator` (Debian: google-cloud-cli-firestore-emulator, default-jre-headless)"

var errMissing = errors.New(HowToInstall)

const startLimit = 60 * time.Second

// The emulator of this test binary: started by the first test that asks for it, stopped by Run.
var (
	running  sync.Mutex
	emulator *process
	startErr error
)

// Run runs the tests of a package and stops the emulator that they started. A package that uses Host MUST call it from
// TestMain: os.Exit(firestoretest.Run(m)).
func Run(m *testing.M) int {
	code := m.Run()
	running.Lock()
	defer running.Unlock()
	if emulator != nil {
		emulator.stop()
	}
	return code
}

// Start starts an emulator that is no test's. stop MUST be called.
func Start() (host string, stop func(), err error) {
	p, err := start()
	if err != nil {
		return "", nil, err
	}
	return p.host, p.stop, nil
}

// Host is the host:port of the emulator. Where it can't be started for want of Java or the emulator itself, the test is
// skipped, or failed when CI=true.
func Host(t testing.TB) string {
	t.Helper()
	running.Lock()
	defer running.Unlock()
	if emulator == nil && startErr == nil {
		emulator, startErr = start()
	}
	switch {
	case startErr == nil:
		return emulator.host
	case errors.Is(startErr, errMissing) && os.Getenv("CI") != "true":
		t.Skip(startErr) // the one thing that a test may be skipped for
	default:
		t.Fatalf("starting the Firestore emulator: %v", startErr)
	}
	return ""
}

var projects atomic.Int64

// Project is a project id that no other test uses: the emulator keeps projects apart, so nothing needs cleaning up.
func Project() string {
	return fmt.Sprintf("test-%d-%s", projects.Add(1), uuid.NewString()[:8])
}

type process struct {
	host  string
	alive io.Closer // the emulator dies with the other end of this pipe, however the test binary ends
	done  chan struct{}
}

// outlive starts the emulator beside a process that waits for the end of its input, which comes with the end of the test
// binary even if that is killed.
const outlive = `"$@" & emulator=$!; cat >/dev/null; kill -9 $emulator`

func start() (*process, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, errMissing
	}
	jar, err := findJar()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	//nolint:gosec,noctx // a fixed program with a path that gcloud named; it outlives every test's context
	cmd := exec.Command("sh", "-c", outlive, "sh", java, "-Xmx512m", "-cp", jar,
		"com.google.cloud.datastore.emulator.firestore.CloudFirestore", "--host=127.0.0.1", "--port="+port)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("piping: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting java: %w", err)
	}
	p := &process{host: "127.0.0.1:" + port, alive: stdin, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // it ends by being killed
	}()
	if err := p.waitReady(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *process) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.host+"/", http.NoBody)
		if err != nil {
			return fmt.Errorf("asking whether it is ready: %w", err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			return resp.Body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it was not ready within %s", startLimit)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *process) stop() {
	_ = p.alive.Close() // the process ends with it
	<-p.done
}

// findJar asks gcloud where its SDK is: the emulator's own launcher adds seconds.
func findJar() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "gcloud", "info", "--format=value(installation.sdk_root)").Output()
	if err != nil {
		return "", errMissing
	}
	jar := filepath.Join(strings.TrimSpace(string(out)), "platform", "cloud-firestore-emulator", "cloud-firestore-emulator.jar")
	if _, err := os.Stat(jar); err != nil {
		return "", errMissing
	}
	return jar, nil
}

func freePort() (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}
