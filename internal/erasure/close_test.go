package erasure

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"recount/internal/descriptor"
	"recount/internal/verify"
	"recount/internal/wire"
)

func TestTheCertificateVerifiesAndOpens(t *testing.T) {
	w := newWorld(t)
	w.populate()
	w.cell("causal").store("outcomes").keepFor = 7 * 24 * time.Hour
	s := w.service("a")
	id := w.filed(s)
	if _, err := s.Certificate(t.Context(), cid, id); refusedFor(err) != "not_closed" {
		t.Errorf("%v", err)
	}
	w.previewed(s, id)
	w.excluded(s, id, "ingest/invoices")
	w.approveBoth(s, id, w.previewedAgain(s, id))
	w.resume(s)
	got, err := s.Certificate(t.Context(), cid, id)
	must(t, err)
	keys, err := verify.ParseKeys(strings.Join(got.Keys, "\n"))
	must(t, err)
	st, err := verify.Certificate([]byte(got.Certificate), keys)
	must(t, err)
	if st.RequestRef != id || st.Outcome != Closed || len(st.Stores) != 3 || st.RecoverableUntil == nil || !st.ClosedAt.Equal(begin) {
		t.Errorf("%+v", st)
	}
	if !st.Opens(got.Opening, tenant, []string{alias, alice}) {
		t.Error("it does not open for the people that it is about")
	}
	if st.Opens(got.Opening, tenant, []string{alice}) || st.Opens(got.Opening, "other", []string{alias, alice}) {
		t.Error("it opens for others")
	}
	if strings.Contains(strings.Split(got.Certificate, "\n")[1], w.show(s, id).SubjectRef) {
		t.Error("the statement holds the linkable reference")
	}
	checkpoint := []byte(w.report(s, id).Checkpoint)
	lines, err := os.Open(filepath.Join(w.dir, "erasure-ledger.jsonl"))
	must(t, err)
	defer lines.Close() //nolint:errcheck // read only
	if rep, err := verify.Ledger(lines, checkpoint, keys); err != nil || rep.Entries < 10 {
		t.Errorf("%+v %v", rep, err)
	}
}

// forbidden are the plaintexts.
var forbidden = []string{alice, alias, phone, sourceRef, "message-of-", "contact-" + alias}

func TestNothingThatIsKeptNamesThePerson(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s, func(f *wire.FileRequest) {
		f.Descriptor.IdentifierStrings = []wire.Identifier{{Value: phone, Strength: "strong"}}
		f.Callback = "https://hooks.example/x"
	})
	w.approved(s, id)
	w.resume(s)
	wantState(t, w.show(s, id), Unverified)
	got, err := s.Certificate(t.Context(), cid, id)
	must(t, err)
	report := w.report(s, id)
	text, err := json.Marshal(report)
	must(t, err)
	page, err := Page(report)
	must(t, err)
	audited, err := json.Marshal(w.audit.rows)
	must(t, err)
	said := map[string][]byte{
		"certificate": []byte(got.Certificate), "report": text, "page": page, "audit": audited, "observer": []byte(strings.Join(w.observer.failed, " ")),
	}
	for _, p := range w.poster.posts {
		said["callbacks"] = append(said["callbacks"], p.url+p.body...)
	}
	files := 0
	must(t, filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		said[path], err = os.ReadFile(path)
		return err
	}))
	if files < 5 {
		t.Fatalf("%d files are too few", files)
	}
	for where, body := range said {
		for _, plain := range forbidden {
			if bytes.Contains(bytes.ToLower(body), []byte(strings.ToLower(plain))) {
				t.Errorf("%s holds %s", where, plain)
			}
		}
	}
}

func TestTheDescriptorIsDestroyedWhenNothingCanBringTheRowsBack(t *testing.T) {
	for what, c := range map[string]struct {
		backups, logs int
		keep          time.Duration
		after         int // days
	}{
		"the backups": {90, 30, 7 * 24 * time.Hour, 90},
		"the logs":    {0, 30, 7 * 24 * time.Hour, 30},
		"the store":   {10, 30, 60 * 24 * time.Hour, 60},
	} {
		w := newWorld(t)
		w.populate()
		w.limits.BackupHorizonDays, w.limits.LogRetentionDays = &c.backups, c.logs
		w.cell("causal").store("outcomes").keepFor = c.keep
		s := w.service("a")
		id := w.filed(s)
		w.approved(s, id)
		w.resume(s)
		at := *w.show(s, id).KeyDestroyAt
		if !at.Equal(begin.AddDate(0, 0, c.after)) {
			t.Errorf("%s: at %s", what, at)
		}
		if d, err := s.Descriptor(t.Context(), bob, id); err != nil || d.PersonIDs[0] != alice {
			t.Errorf("%s: %v", what, err)
		}
		sealed := w.stored(id).Sealed
		w.move(at.Sub(w.Now()) - time.Second)
		w.resume(s)
		if w.show(s, id).KeyDestroyedAt != nil {
			t.Errorf("%s: too early", what)
		}
		w.move(2 * time.Second)
		w.resume(s)
		if _, err := w.vault.Open(t.Context(), id, sealed); !errors.Is(err, descriptor.ErrDestroyed) {
			t.Errorf("%s: %v", what, err)
		}
		records := w.records(id)
		if n := len(records); records[n-2].Phase != "descriptor:intent" || records[n-1].Phase != "descriptor:outcome" {
			t.Errorf("%s: the ledger ends with %s", what, records[n-1].Phase)
		}
		if got, err := s.Certificate(t.Context(), cid, id); err != nil || got.Opening != "" || got.Certificate == "" {
			t.Errorf("%s: %v", what, err)
		}
		if r := w.stored(id); r.KeyDestroyedAt == nil || len(r.Sealed) > 0 || !r.wake().IsZero() {
			t.Errorf("%s: %+v", what, r.KeyDestroyedAt)
		}
	}
}

func TestAKeyThatCanNotBeDestroyedKeepsNobodyElseWaiting(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	_, err := s.Reject(t.Context(), bob, id, "unfounded")
	must(t, err)
	calls := 0
	s.Sealer = failingDestroy{s.Sealer, &calls}
	w.resume(s)
	w.resume(s)
	if calls != 1 || !w.stored(id).wake().After(w.Now()) {
		t.Errorf("it was tried %d times at once", calls)
	}
	s = w.service("a")
	w.move(time.Hour)
	w.resume(s)
	if w.show(s, id).KeyDestroyedAt == nil {
		t.Error("it was not tried again")
	}
}

func TestErrorsOfTheCoordinatorEndAtTheDeadlineToo(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.approved(s, id)
	s.Programs = &faultyPrograms{w.programs, &killer{at: 1, way: failsBefore}}
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Pending)
	if strings.Contains(r.StateDetail, errFault.Error()) || len(w.observer.failed) == 0 {
		t.Errorf("%s, %v", r.StateDetail, w.observer.failed)
	}
	w.move(w.limits.Deadline + time.Hour)
	s.Programs = &faultyPrograms{w.programs, &killer{at: 1, way: failsBefore}}
	w.resume(s)
	wantState(t, w.show(s, id), Failed)
	if len(w.observer.ended) != 1 {
		t.Errorf("%v", w.observer.ended)
	}
	w.approveBoth(s, id, w.previewedAgain(s, id))
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}
