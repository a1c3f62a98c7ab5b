package sqlite_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
)

const killFolder = "SQLITE_KILL_FOLDER"

func killed(i int) string { return fmt.Sprintf("killed-%04d@example.test", i) }

const killPeople = 1000

// A process is killed while it erases. Who it had answered for is in no file, even before anybody opens them again;
// and when the erasures are tried again, nobody is.
func TestAKillInTheMiddleOfErasuresLeavesNothingAfterARetry(t *testing.T) {
	if folder := os.Getenv(killFolder); folder != "" {
		eraseUntilKilled(t, folder)
		return
	}
	for _, after := range []int{0, 1, 40, 300} {
		t.Run(fmt.Sprintf("after %d answers", after), func(t *testing.T) { testKill(t, after) })
	}
}

func testKill(t *testing.T, after int) {
	folder := t.TempDir()
	answered := runAndKill(t, folder, after)
	if found := residue(t, folder, answered); found > 0 {
		t.Errorf("%d of %d identities that were answered for are in the files of the killed process", found, len(answered))
	}
	db := open(t, filepath.Join(folder, "cell.db"))
	events := table(t, db, storetest.EventsTable())
	for _, identity := range answered {
		if n := count(t, events, identity); n != 0 {
			t.Fatalf("%d rows are back of a subject that was answered for", n)
		}
	}
	var gone []string
	for i := range killPeople / 2 {
		gone = append(gone, killed(i))
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() { eraseInTurn(t, gone, w, events) })
	}
	wg.Wait()
	if found := residue(t, folder, gone); found > 0 {
		t.Errorf("%d of %d identities are in the files after the retry", found, len(gone))
	}
	if n := count(t, events, killed(killPeople-1)); n == 0 {
		t.Error("who was not erased is gone")
	}
}

// runAndKill answers who the process had answered for.
func runAndKill(t *testing.T, folder string, after int) (answered []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKillInTheMiddle")
	cmd.Env = append(os.Environ(), killFolder+"="+folder)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" && after == 0 {
			time.Sleep(2 * time.Millisecond)
			break
		}
		if identity, ok := strings.CutPrefix(lines.Text(), "erased "); ok {
			if answered = append(answered, identity); len(answered) == after {
				break
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // what it had said by then
		if identity, ok := strings.CutPrefix(lines.Text(), "erased "); ok {
			answered = append(answered, identity)
		}
	}
	_ = cmd.Wait() // it was killed
	if len(answered) < after || len(answered) > killPeople/2-1 {
		t.Fatalf("%d erasures were answered before the kill", len(answered))
	}
	return answered
}

func eraseUntilKilled(t *testing.T, folder string) {
	db, err := sqlite.Open(t.Context(), filepath.Join(folder, "cell.db"))
	if err != nil {
		t.Fatal(err)
	}
	events := table(t, db, storetest.EventsTable())
	for range 3 {
		var rows []stores.Row
		for i := range killPeople {
			rows = append(rows, rowsOf(storetest.EventsTable(), killed(i), 1)...)
		}
		add(t, events, rows...)
	}
	fmt.Println("ready")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < killPeople/2; i += 4 {
				wantErased(t, verdict(t.Context(), events, who(t, killed(i))))
				fmt.Println("erased " + killed(i))
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Minute)
}
