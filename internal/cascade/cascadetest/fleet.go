package cascadetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"recount/internal/cascade"
)

// Fleet is some honest cells that all take the same time to answer, and the cascade over them.
type Fleet struct {
	Cascade *cascade.Cascade
	URLs    []string
	servers []*httptest.Server
}

// StartFleet starts n cells with one store each. The caller MUST close the fleet.
func StartFleet(n int, delay time.Duration) *Fleet {
	f := &Fleet{}
	pool := cascade.NewTransport()
	options := cascade.Options{
		Salt: Salt(), Timeout: 20 * time.Second, Transport: func(string) http.RoundTripper { return pool },
	}
	targets := make([]cascade.Cell, n)
	for i := range targets {
		cell := &Cell{Name: fmt.Sprintf("cell%d", i), Stores: []string{"rows"}, Delay: delay}
		server := cell.Start()
		f.servers, f.URLs = append(f.servers, server), append(f.URLs, server.URL)
		targets[i] = cascade.NewPeer(cascade.PeerConfig{Name: cell.Name, URL: server.URL, Stores: cell.Stores}, options)
	}
	f.Cascade = cascade.New(time.Minute, targets...)
	return f
}

// Close stops the cells.
func (f *Fleet) Close() {
	for _, server := range f.servers {
		server.Close()
	}
}
