package erasure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"recount/internal/notify"
	"recount/internal/wire"
)

// The kinds of callbacks.
const (
	kindState     = "state"     // of our own API, thin
	kindRecipient = "recipient" // Art. 19
	kindOpenDSR   = "opendsr"
)

// maxWaiting bounds the callbacks of a request to one URL that wait for their first try.
const maxWaiting = 16

// hostPause is how long a host that failed is left alone.
const hostPause = 5 * time.Second

// delivery is one callback that is due until it was taken, or given up: then it is out of the outbox.
type delivery struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	URL       string    `json:"url"`
	Body      []byte    `json:"body"`
	Since     time.Time `json:"since"`
	Next      time.Time `json:"next"`
	Attempts  int       `json:"attempts"`
	Recipient int       `json:"recipient,omitzero"` // of kindRecipient: which one
}

func (r *request) enqueue(kind, url string, body any, now time.Time, recipient int) {
	text, err := json.Marshal(body)
	if err != nil {
		return // thin payloads of ours always encode
	}
	waiting := 0
	for i := range r.Outbox { // where too many wait already, the last that was not tried yet says what is so now
		if o := &r.Outbox[i]; o.Kind == kind && o.URL == url && o.Recipient == recipient && o.Attempts == 0 {
			if waiting++; waiting == maxWaiting {
				o.Body = text
				return
			}
		}
	}
	r.Outbox = append(r.Outbox, delivery{ID: "msg_" + uuid.NewString(), Kind: kind, URL: url, Body: text, Since: now, Next: now, Recipient: recipient})
}

// tell puts the callbacks of a change of state into the request's outbox, which is kept with the change.
func (s *Service) tell(r *request, now time.Time) {
	if r.Callback != "" {
		r.enqueue(kindState, r.Callback, wire.Callback{
			Type: "erasure.state", Timestamp: now, Data: wire.CallbackData{RequestID: r.ID, State: r.State},
		}, now, 0)
	}
	if r.DSR != nil {
		s.tellOpenDSR(r, now)
	}
}

// tellRecipients informs those to whom the data was disclosed (Art. 19).
func (s *Service) tellRecipients(r *request, now time.Time) {
	for i, to := range r.Recipients {
		if to.Callback != "" {
			r.enqueue(kindRecipient, to.Callback, wire.Callback{
				Type: "erasure.recipient", Timestamp: now, Data: wire.CallbackData{RequestID: r.ID, State: r.State},
			}, now, i)
		}
	}
}

// deliver sends what is due of the outbox. What isn't taken is tried again over days, under the same id.
func (d *drive) deliver(ctx context.Context) error {
	r, err := d.load(ctx, d.id)
	if err != nil {
		return err
	}
	slow := map[string]bool{} // hosts that failed in this round: the others behind them are not kept waiting
	for _, due := range r.Outbox {
		host := hostOf(due.URL)
		if due.Next.After(d.Now()) || slow[host] {
			continue
		}
		failure := d.post(ctx, due)
		slow[host] = failure != nil
		if _, err := d.save(context.WithoutCancel(ctx), func(r *request) error {
			r.delivered(due, failure, d.Now().UTC())
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.Host
}

func (d *drive) post(ctx context.Context, due delivery) error {
	var header http.Header
	if due.Kind == kindOpenDSR {
		header = d.OpenDSR.Sign(due.ID, d.Now(), due.Body)
	} else {
		header = d.Callback.Sign(due.ID, d.Now(), due.Body)
	}
	header.Set("Content-Type", "application/json")
	if _, err := d.Poster.Post(ctx, due.URL, header, due.Body); err != nil {
		return fmt.Errorf("a callback: %w", err)
	}
	return nil
}

// delivered writes down what came of a callback.
func (r *request) delivered(sent delivery, failure error, now time.Time) {
	for i := range r.Outbox {
		o := &r.Outbox[i]
		if o.ID != sent.ID {
			continue
		}
		o.Attempts++
		if failure != nil {
			r.backOff(hostOf(o.URL), now)
		}
		over := true
		var refused *notify.DeliveryError
		next, more := notify.Next(o.Attempts, o.Since, now)
		switch {
		case failure == nil:
			r.informed(o, "notified", "", now)
		case !more || errors.As(failure, &refused) && !refused.Retryable:
			r.note(now, "recount", "callback_given_up", o.Kind)
			r.informed(o, "impossible", "the recipient's endpoint did not take the notice", now)
		default:
			o.Next, over = next, false
		}
		if over {
			r.Outbox = slices.Delete(r.Outbox, i, i+1)
		}
		return
	}
}

// backOff leaves a host alone for a while after it failed: what is due there is not tried one after the other.
func (r *request) backOff(host string, now time.Time) {
	for i := range r.Outbox {
		if o := &r.Outbox[i]; hostOf(o.URL) == host && o.Next.Before(now.Add(hostPause)) {
			o.Next = now.Add(hostPause)
		}
	}
}

func (r *request) informed(o *delivery, status, reason string, now time.Time) {
	if o.Kind == kindRecipient && o.Recipient < len(r.Recipients) {
		to := &r.Recipients[o.Recipient]
		to.Status, to.Reason, to.At = status, reason, &now
	}
}
