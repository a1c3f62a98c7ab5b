package cascade_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/cascade/cascadetest"
	"recount/internal/subject"
)

// peerDelay is what each peer of the benchmarks takes to answer.
const peerDelay = 20 * time.Millisecond

// BenchmarkCascadeOverItsSlowestPeer reports how much longer a cascade over three peers takes than the slowest of them
// takes to answer a bare POST, each asked alone.
func BenchmarkCascadeOverItsSlowestPeer(b *testing.B) {
	fleet := cascadetest.StartFleet(3, peerDelay)
	defer fleet.Close()
	s := someone(b)
	var cascades, slowest []time.Duration
	for b.Loop() {
		cascades = append(cascades, erase(b, fleet, s))
		var worst time.Duration
		for _, url := range fleet.URLs {
			worst = max(worst, post(b, url, s))
		}
		slowest = append(slowest, worst)
	}
	b.ReportMetric(float64(median(cascades))/float64(median(slowest)), "cascade/slowest")
}

// BenchmarkManyPeersOverThree reports how much longer a cascade over 64 peers takes than one over three.
func BenchmarkManyPeersOverThree(b *testing.B) {
	many, three := cascadetest.StartFleet(64, peerDelay), cascadetest.StartFleet(3, peerDelay)
	defer many.Close()
	defer three.Close()
	s := someone(b)
	var manyTook, threeTook []time.Duration
	for b.Loop() {
		manyTook = append(manyTook, erase(b, many, s))
		threeTook = append(threeTook, erase(b, three, s))
	}
	b.ReportMetric(float64(median(manyTook))/float64(median(threeTook)), "64/3")
}

func erase(b *testing.B, fleet *cascadetest.Fleet, s subject.Subject) time.Duration {
	b.Helper()
	started := time.Now()
	receipts := fleet.Cascade.Erase(b.Context(), requestID, about(s))
	took := time.Since(started)
	if subject.Fold(receipts) != subject.Erased {
		b.Fatal(told(receipts))
	}
	return took
}

// post is the baseline: the same request by the standard library's client.
func post(b *testing.B, url string, s subject.Subject) time.Duration {
	b.Helper()
	started := time.Now()
	body := strings.NewReader(`{"tenant_id":"` + s.Tenant() + `","identity_id":"` + s.Identity() + `"}`)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url+"/v1/intent/subject:delete", body)
	if err != nil {
		b.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		b.Fatal(response.Status, err)
	}
	return time.Since(started)
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}
