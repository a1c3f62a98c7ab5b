package cascade

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"recount/internal/subject"
	"recount/internal/wire"
)

// maxAttempts is how often one erasure is sent to one peer. Erasing is idempotent, so a retry is safe even after an
// answer that was lost on its way.
const maxAttempts = 3

// answer is what came back from a peer, with a code that may carry an erase response.
type answer struct {
	code int
	body []byte
}

// failure is why an attempt brought no answer, and whether another may.
type failure struct {
	reason subject.Reason
	again  bool
	wait   time.Duration // what the peer asked for
}

// call posts a request and retries while there is time. An empty reason means that there is an answer to judge.
func (p *Peer) call(ctx context.Context, requestID, path string, request any) (answer, subject.Reason) {
	if !p.Configured() {
		return answer{}, subject.ReasonPeerURLUnset
	}
	body, err := wire.Marshal(request)
	if err != nil {
		return answer{}, subject.ReasonPeerUnreachable
	}
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	pause := &backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 3, MaxInterval: time.Second,
	}
	for attempt := 1; ; attempt++ {
		got, failed := p.attempt(ctx, requestID, p.config.URL+path, body)
		if failed == nil {
			return got, subject.ReasonNone
		}
		wait := failed.wait + pause.NextBackOff()
		if !failed.again || attempt == maxAttempts || time.Until(deadline) <= wait {
			return answer{}, failed.reason
		}
		p.options.Observer.PeerRetried(p.config.Name, failed.reason)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answer{}, endOf(ctx, failed.reason)
		}
	}
}

// attempt sends the request once. It goes through the RoundTripper itself, because a Client looks at redirects.
func (p *Peer) attempt(ctx context.Context, requestID, url string, body []byte) (answer, *failure) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, &failure{reason: subject.ReasonPeerUnreachable}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("X-Request-ID", requestID)
	request.Header.Set("Prefer", wire.PreferSources)
	response, err := p.transport.RoundTrip(request)
	if err != nil {
		return answer{}, broken(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is left to lose
	if failed := refused(response); failed != nil {
		return answer{}, failed
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, broken(ctx, err)
	case int64(len(data)) > maxAnswer:
		return answer{}, &failure{reason: subject.ReasonPeerTooLarge}
	}
	return answer{code: response.StatusCode, body: data}, nil
}

// broken judges an error on the way to the peer or back.
func broken(ctx context.Context, err error) *failure {
	var token interface{ Unauthorised() bool }
	switch {
	case ctx.Err() != nil:
		return &failure{reason: endOf(ctx, subject.ReasonPeerTimeout)}
	case errors.As(err, &token) && token.Unauthorised():
		return &failure{reason: subject.ReasonPeerUnauthorised}
	default:
		return &failure{reason: subject.ReasonPeerUnreachable, again: true}
	}
}

// refused judges a code that no erase response is sent with.
func refused(response *http.Response) *failure {
	switch code := response.StatusCode; {
	case code == http.StatusOK, code == http.StatusConflict, code == http.StatusBadGateway:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return &failure{reason: subject.ReasonPeerUnavailable, again: true, wait: retryAfter(response.Header, time.Now())}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return &failure{reason: subject.ReasonPeerUnauthorised}
	case code >= 300 && code < 400:
		return &failure{reason: subject.ReasonPeerRedirected}
	default:
		return &failure{reason: subject.ReasonPeerHTTPStatus}
	}
}

// retryAfter reads seconds or an HTTP date: 0 where there is neither, and never more than a day.
func retryAfter(header http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(most/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}
