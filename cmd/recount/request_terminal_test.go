//go:build linux

package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// seen runs a command on a terminal, types there, and answers what a person sees and the exit code.
func seen(t *testing.T, command *exec.Cmd, columns uint16, typed string) (string, int) {
	t.Helper()
	outside, inside := openTerminal(t, columns)
	command.Stdin, command.Stdout, command.Stderr = inside, inside, inside
	read := make(chan string, 1)
	go func() {
		out, _ := io.ReadAll(outside) // EIO, once nobody holds the other end
		read <- string(out)
	}()
	_, err := io.WriteString(outside, typed)
	must(t, err)
	err = command.Run()
	_ = inside.Close()
	if err != nil {
		t.Log(err)
	}
	select {
	case out := <-read:
		return out, command.ProcessState.ExitCode()
	case <-time.After(10 * time.Second):
		t.Fatal("the terminal has no end")
		return "", 0
	}
}

func TestAnApprovalIsTypedOnATerminal(t *testing.T) {
	for _, c := range []struct {
		typed string
		total int64
		code  int
		want  string
	}{
		{"1215\n", 1215, 0, "One of two approvals is given"},
		{"yes\n", 1215, 2, "nothing was approved"},
		{"erase\n", 0, 0, "One of two approvals is given"},
		{"0\n", 0, 2, "nothing was approved"},
	} {
		d, r := newDesk(t), previewed()
		r.Preview.Total = c.total
		d.is(r)
		out, code := seen(t, d.command(t, "approve", theID, "--digest", theDigest), 160, c.typed)
		if code != c.code || !strings.Contains(out, c.want) || !strings.Contains(out, "This is the first of two approvals.") {
			t.Errorf("%q: exit code %d\n%s", c.typed, code, out)
		}
		if approved := len(d.requests()) == 2; approved != (c.code == 0) {
			t.Errorf("%q: asked %q", c.typed, d.requests())
		}
	}
}

func TestAStatusIsDrawnInPlace(t *testing.T) {
	d := newDesk(t)
	d.is(previewed(), half, half, closed)
	out, code := seen(t, d.command(t, "status", theID), 160, "")
	if code != 0 || strings.Count(out, "\x1b[J") != 3 || !strings.Contains(out, "A\r\x1b[") || !strings.Contains(out, "█") || !strings.Contains(out, "8 of 8") {
		t.Errorf("exit code %d\n%q", code, out)
	}
	d.is(previewed(), half, pending)
	if out, code := seen(t, d.command(t, "status", theID), 160, ""); code != 3 || !strings.Contains(out, "tried again in") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	d.is(previewed(), half, pending, closed)
	if out, code := seen(t, d.command(t, "status", theID, "--watch"), 160, ""); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestADumbTerminalIsNotDrawnOver(t *testing.T) {
	d := newDesk(t)
	d.is(previewed(), half, closed)
	command := d.command(t, "status", theID, "--watch")
	command.Env = append(command.Env, "TERM=dumb")
	if out, code := seen(t, command, 160, ""); code != 0 || strings.Contains(out, "\x1b") || !strings.Contains(out, "stage execute: running") {
		t.Errorf("exit code %d\n%q", code, out)
	}
}

func TestAStatusFitsANarrowTerminal(t *testing.T) {
	d, r := newDesk(t), previewed()
	half(&r)
	for range 60 { // more than there are lines
		r.Stores = append(r.Stores, r.Stores[0])
	}
	d.is(r, half, closed)
	command := d.command(t, "status", theID)
	command.Env = append(command.Env, "NO_COLOR=1")
	out, code := seen(t, command, 50, "")
	if code != 0 || strings.Contains(out, "\x1b[6") {
		t.Errorf("exit code %d\n%q", code, out)
	}
	for line := range strings.Lines(out) {
		_, drawn, live := strings.Cut(strings.TrimRight(line, "\r\n"), "\x1b[2K")
		if live && len([]rune(drawn)) > 50 {
			t.Errorf("too wide: %q", drawn)
		}
	}
}
