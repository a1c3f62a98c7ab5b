package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"recount/internal/cascade"
	"recount/internal/cascade/cascadetest"
	"recount/internal/subject"
)

const peerDelay = 20 * time.Millisecond

// cascade measures what the fan-out adds to its slowest peer.
func (b *bench) cascade(ctx context.Context) ([]row, error) {
	const rounds = 60
	three, stopThree := peers(3)
	defer stopThree()
	many, stopMany := peers(64)
	defer stopMany()
	slowest, stopSlowest := slowestPeer(ctx)
	defer stopSlowest()
	var small, large, alone spread
	for i := range rounds {
		s, err := subject.New("acme", person("f", i))
		if err != nil {
			return nil, err
		}
		for _, run := range []struct {
			into *spread
			work func() error
		}{
			{&alone, func() error { return slowest(s) }},
			{&small, func() error { return erased(three.Erase(ctx, requestID(i), subject.TargetOf(s, cascadetest.Salt()))) }},
			{&large, func() error { return erased(many.Erase(ctx, requestID(i), subject.TargetOf(s, cascadetest.Salt()))) }},
		} {
			started := time.Now()
			if err := run.work(); err != nil {
				return nil, err
			}
			if i >= 10 { // the first rounds open connections
				*run.into = append(*run.into, time.Since(started))
			}
		}
	}
	return []row{
		atMost("cascade / its slowest peer (3 peers at 20 ms)", ms(small.p50())/ms(alone.p50()), "ratio", 1.10,
			fmt.Sprintf("%.2f ms against %.2f ms, aim at 1.03; p99 %.2f ms", ms(small.p50()), ms(alone.p50()), ms(small.p99()))),
		atMost("64 peers / 3 peers", ms(large.p50())/ms(small.p50()), "ratio", 1.25, fmt.Sprintf("%.2f ms; p99 %.2f ms", ms(large.p50()), ms(large.p99()))),
	}, nil
}

// peers starts so many honest cells and a cascade over them.
func peers(n int) (*cascade.Cascade, func()) {
	transport := cascade.NewTransport()
	var targets []cascade.Cell
	var stops []func()
	for i := range n {
		cell := &cascadetest.Cell{Name: fmt.Sprintf("cell%d", i), Stores: []string{"rows"}, Delay: peerDelay}
		server := cell.Start()
		stops = append(stops, server.Close)
		targets = append(targets, cascade.NewPeer(cascade.PeerConfig{Name: cell.Name, URL: server.URL, Stores: cell.Stores},
			cascade.Options{Salt: cascadetest.Salt(), Timeout: 5 * time.Second, Transport: func(string) http.RoundTripper { return transport }}))
	}
	return cascade.New(10*time.Second, targets...), func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// slowestPeer is the baseline: one plain HTTP call to one such cell.
func slowestPeer(ctx context.Context) (ask func(subject.Subject) error, stop func()) {
	cell := &cascadetest.Cell{Name: "alone", Stores: []string{"rows"}, Delay: peerDelay}
	server := cell.Start()
	var n atomic.Int64
	return func(s subject.Subject) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/intent/subject:delete", jsonBody(s))
		if err != nil {
			return fmt.Errorf("making the request: %w", err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Request-ID", requestID(int(n.Add(1))))
		return drain(request)
	}, server.Close
}

func requestID(i int) string { return fmt.Sprintf("%032x", i+1) }

func erased(receipts []subject.Receipt) error {
	if subject.Fold(receipts) != subject.Erased {
		return fmt.Errorf("not erased: %s", receipts[0].Reason())
	}
	return nil
}
