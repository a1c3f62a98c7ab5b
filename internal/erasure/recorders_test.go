package erasure

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"recount/internal/audit"
)

type recordedAudit struct {
	mu   sync.Mutex
	rows []audit.Row
}

func (a *recordedAudit) Record(rows ...audit.Row) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = append(a.rows, rows...)
}

func (a *recordedAudit) last() audit.Row {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.rows) == 0 {
		return audit.Row{}
	}
	return a.rows[len(a.rows)-1]
}

type recordedObserver struct {
	mu            sync.Mutex
	ended         []string
	failed        []string
	overdue, soon int64
}

func (o *recordedObserver) RequestEnded(state string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, state)
}

func (o *recordedObserver) RequestsDue(overdue, soon int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.overdue, o.soon = overdue, soon
}

func (o *recordedObserver) RequestFailed(step string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = append(o.failed, step+": "+err.Error())
}

type plainSigner string

func (s plainSigner) Sign(id string, _ time.Time, _ []byte) http.Header {
	return http.Header{"Webhook-Id": {id}, "Signed-By": {string(s)}}
}

type posted struct {
	url    string
	header http.Header
	body   string
}

type fakePoster struct {
	mu     sync.Mutex
	answer func(url string) error
	posts  []posted
}

func (p *fakePoster) CheckURL(raw string) error {
	if len(raw) < 22 || raw[:22] != "https://hooks.example/" {
		return errors.New("a callback goes to a registered host by https")
	}
	return nil
}

func (p *fakePoster) Post(_ context.Context, url string, header http.Header, body []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts = append(p.posts, posted{url, header, string(body)})
	if p.answer != nil {
		if err := p.answer(url); err != nil {
			return 0, err
		}
	}
	return http.StatusOK, nil
}
