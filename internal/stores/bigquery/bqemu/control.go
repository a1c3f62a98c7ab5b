package bqemu

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// control wraps a call of the control interface, with which a test in another process drives the emulator.
func (s *Server) control(handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := handle(r)
		switch {
		case err != nil:
			writeError(w, err)
		case v == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			writeJSON(w, http.StatusOK, v)
		}
	}
}

// postFault takes a Fault.
func (s *Server) postFault(r *http.Request) (any, error) {
	f, err := decode[Fault](r)
	if err != nil {
		return nil, err
	}
	if f.At == "" {
		return nil, errors.New("a fault needs at")
	}
	s.Inject(*f)
	return nil, nil //nolint:nilnil // an empty answer
}

func (s *Server) deleteFaults(*http.Request) (any, error) {
	s.Heal()
	return nil, nil //nolint:nilnil // an empty answer
}

// postStreaming takes {"window":"90m","at":"job.wait","reason":"…","whole":false}.
func (s *Server) postStreaming(r *http.Request) (any, error) {
	v, err := decode[struct {
		Streaming
		Window string `json:"window"`
	}](r)
	if err != nil {
		return nil, err
	}
	if v.Streaming.Window, err = time.ParseDuration(v.Window); err != nil {
		return nil, fmt.Errorf("window: %w", err)
	}
	s.SetStreaming(v.Streaming)
	return nil, nil //nolint:nilnil // an empty answer
}

// postClock takes {"advance":"2h"}.
func (s *Server) postClock(r *http.Request) (any, error) {
	v, err := decode[struct {
		Advance string `json:"advance"`
	}](r)
	if err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(v.Advance)
	if err != nil {
		return nil, fmt.Errorf("advance: %w", err)
	}
	s.Advance(d)
	return nil, nil //nolint:nilnil // an empty answer
}

// postDrop takes {"table":"outcomes"}, of the first dataset.
func (s *Server) postDrop(r *http.Request) (any, error) {
	v, err := decode[struct {
		Table string `json:"table"`
	}](r)
	if err != nil {
		return nil, err
	}
	return nil, s.DropTable(v.Table)
}

// postPolicies takes {"table":"outcomes","filters":["region = 'EU'"]}: the row access policies of the table from now on.
func (s *Server) postPolicies(r *http.Request) (any, error) {
	v, err := decode[struct {
		Table   string   `json:"table"`
		Filters []string `json:"filters"`
	}](r)
	if err != nil {
		return nil, err
	}
	return nil, s.SetRowPolicies(v.Table, v.Filters...)
}

func (s *Server) getStatements(*http.Request) (any, error) {
	return map[string]any{"statements": s.Statements()}, nil
}
