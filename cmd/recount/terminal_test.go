//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"recount/internal/subject"
)

// openTerminal is a pseudo-terminal: what is written to the second end is read from the first.
func openTerminal(t *testing.T, columns uint16) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(inside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = outside.Close(), inside.Close() })
	return outside, inside
}

// onTerminal runs the command with its output on a terminal and answers what a person sees.
func onTerminal(t *testing.T, f *fleet, columns uint16, env []string, args ...string) string {
	t.Helper()
	outside, inside := openTerminal(t, columns)
	command := exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Args[0] = "recount" // testscript.Main looks at it
	coordinator, cells := f.addresses()
	command.Env = append([]string{"RECOUNT_COORDINATOR=" + coordinator, "RECOUNT_CELLS=" + cells, "TERM=xterm"}, env...)
	command.Stdout, command.Stderr = inside, inside
	read := make(chan string, 1)
	go func() {
		var out strings.Builder
		buffer := make([]byte, 4096)
		for {
			n, err := outside.Read(buffer)
			out.Write(buffer[:n])
			if err != nil { // EIO, once nobody holds the other end
				read <- out.String()
				return
			}
		}
	}()
	err := command.Run()
	_ = inside.Close()
	if err != nil {
		t.Log(err)
	}
	select {
	case out := <-read:
		return out
	case <-time.After(10 * time.Second):
		t.Fatal("the terminal has no end")
		return ""
	}
}

func seeded(t *testing.T) *fleet {
	t.Helper()
	f := newFleet()
	t.Cleanup(f.close)
	who, err := subject.New("acme", "alice")
	if err != nil {
		t.Fatal(err)
	}
	graph := f.table("graph")
	graph.change(func() { graph.rows[who] = 2 })
	return f
}

func TestATerminalGetsColoursUnlessItWantsNone(t *testing.T) {
	f := seeded(t)
	out := onTerminal(t, f, 160, nil, "erase", "--tenant", "acme", "--identity", "alice")
	for _, want := range []string{"\x1b[32merased\x1b[0m", "\x1b[32m✓\x1b[0m", "BACKEND"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	for _, none := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if out := onTerminal(t, f, 160, []string{none}, "erase", "--tenant", "acme", "--identity", "alice"); strings.Contains(out, "\x1b") {
			t.Errorf("%s is coloured:\n%s", none, out)
		}
	}
}

func TestANarrowTerminalLosesSpareColumnsAndNotTheMeasurements(t *testing.T) {
	out := onTerminal(t, seeded(t), 72, []string{"NO_COLOR=1"}, "erase", "--tenant", "acme", "--identity", "alice")
	if strings.Contains(out, "BACKEND") || !strings.Contains(out, "REMAINING") {
		t.Errorf("got\n%s", out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "  graph") && len([]rune(strings.TrimRight(line, "\r\n"))) > 72 {
			t.Errorf("too wide: %q", line)
		}
	}
}

func TestABatchOnATerminalShowsItsProgress(t *testing.T) {
	f := seeded(t)
	file := t.TempDir() + "/people"
	if err := os.WriteFile(file, []byte("alice\nbob\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := onTerminal(t, f, 160, nil, "erase", "--tenant", "acme", "--identity-file", file)
	if !strings.Contains(out, "Erasing") || !strings.Contains(out, "2 erased, 0 pending, 0 failed") {
		t.Errorf("got\n%s", out)
	}
}
