package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"recount/internal/subject"
)

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}

// post sends a body and insists on the status.
func post(ctx context.Context, url, contentType string, body io.Reader, want int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	if response.StatusCode != want {
		return nil, fmt.Errorf("%s: %.300s", response.Status, answer)
	}
	return answer, nil
}

func postJSON(ctx context.Context, url string, body any, want int) ([]byte, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return post(ctx, url, "application/json", bytes.NewReader(encoded), want)
}

// eraseAt erases one identity and insists on erased.
func eraseAt(ctx context.Context, url, verb, identity string) error {
	answer, err := postJSON(ctx, url+"/v1/intent/subject:"+verb, map[string]string{"tenant_id": "acme", "identity_id": identity}, http.StatusOK)
	if err != nil {
		return err
	}
	if !strings.Contains(string(answer), `"status":"erased"`) {
		return fmt.Errorf("not erased: %.300s", answer)
	}
	return nil
}

// load sends events of people: rows each, as NDJSON.
func load(ctx context.Context, url string, people, rows int, prefix string) error {
	reader, writer := io.Pipe()
	go func() {
		for p := range people {
			for r := range rows {
				if _, err := io.WriteString(writer, eventLine(person(prefix, p), fmt.Sprintf("%s-%d-%d", prefix, p, r))); err != nil {
					return
				}
			}
		}
		_ = writer.Close()
	}()
	answer, err := post(ctx, url+"/v1/intent/events", "application/x-ndjson", reader, http.StatusOK)
	if err == nil && !strings.Contains(string(answer), fmt.Sprintf(`"accepted":%d,`, people*rows)) {
		err = fmt.Errorf("not all accepted: %.300s", answer)
	}
	return err
}

func person(prefix string, i int) string {
	return fmt.Sprintf("person-email:%s%06d@example.com", prefix, i)
}

func eventLine(identity, ref string) string {
	return `{"tenant_id":"acme","identity_id":"` + identity + `","source":"web","source_ref":"` + ref +
		`","consent_basis":"consent","event_type":"page_view","occurred_at":"2026-11-01T10:00:00Z","payload":{"path":"/running-shoes","seconds":17}}` + "\n"
}

// clients runs work n times from so many clients at once, and answers how long the whole took and each call.
func clients(width, n int, work func(i int) error) (time.Duration, spread, error) {
	took := make(spread, n)
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	started := time.Now()
	for range width {
		wg.Go(func() {
			for i := range next {
				at := time.Now()
				if err := work(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
				took[i] = time.Since(at)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return time.Since(started), took, first
}

func jsonBody(s subject.Subject) io.Reader {
	encoded, err := json.Marshal(map[string]string{"tenant_id": s.Tenant(), "identity_id": s.Identity()})
	if err != nil {
		panic(err) // two strings always encode
	}
	return bytes.NewReader(encoded)
}

// drain sends a request, reads the answer to its end and insists on 200.
func drain(request *http.Request) error {
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}
