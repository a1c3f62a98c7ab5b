package bqemu_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	bq "cloud.google.com/go/bigquery"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"recount/internal/stores/bigquery/bqemu"
)

func start(t *testing.T) (*bqemu.Server, *bq.Client) {
	t.Helper()
	s, err := bqemu.Start(t.Context(), bqemu.Options{DDL: []string{
		"CREATE TABLE IF NOT EXISTS people (name STRING NOT NULL, born TIMESTAMP, score FLOAT64, n INT64, tags ARRAY<STRING>) PARTITION BY DATE(born) CLUSTER BY name;",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := bq.NewClient(t.Context(), s.Project(), option.WithEndpoint(s.URL()+"/bigquery/v2/"), option.WithoutAuthentication())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

type person struct {
	Name  string    `bigquery:"name"`
	Born  time.Time `bigquery:"born"`
	Score float64   `bigquery:"score"`
	N     int64     `bigquery:"n"`
	Tags  []string  `bigquery:"tags"`
}

func query(t *testing.T, c *bq.Client, text string, params ...bq.QueryParameter) []person {
	t.Helper()
	q := c.Query(text)
	q.Parameters, q.DisableQueryCache = params, true
	it, err := q.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []person
	for {
		var p person
		err := it.Next(&p)
		if err == iterator.Done { //nolint:errorlint // a sentinel by contract
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
}

func TestTheOfficialClientReadsWhatItStreamed(t *testing.T) {
	t.Parallel()
	_, c := start(t)
	born := time.Date(1990, 1, 2, 3, 4, 5, 678000, time.UTC)
	want := person{Name: "O'Neil `x` \\ é", Born: born, Score: 0.1, N: -7, Tags: []string{"a", "b"}}
	if err := c.Dataset("intent").Table("people").Inserter().Put(t.Context(), []person{want}); err != nil {
		t.Fatal(err)
	}
	got := query(t, c, "SELECT t.* FROM intent.people AS t WHERE t.name = @name AND t.born = @born AND t.score < @score AND t.n IN UNNEST(@ns)",
		bq.QueryParameter{Name: "name", Value: want.Name}, bq.QueryParameter{Name: "born", Value: born},
		bq.QueryParameter{Name: "score", Value: 0.2}, bq.QueryParameter{Name: "ns", Value: []int64{-7, 1}})
	if len(got) != 1 || !got[0].Born.Equal(born) || got[0].Name != want.Name || got[0].Score != want.Score || len(got[0].Tags) != 2 {
		t.Errorf("read %+v", got)
	}
}

func TestLongResultsComeInPages(t *testing.T) {
	t.Parallel()
	_, c := start(t)
	rows := make([]person, 2500)
	for i := range rows {
		rows[i] = person{Name: "x", N: int64(i)}
	}
	if err := c.Dataset("intent").Table("people").Inserter().Put(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	got := query(t, c, "SELECT t.* FROM intent.people AS t ORDER BY t.n")
	if len(got) != len(rows) || got[2499].N != 2499 {
		t.Errorf("%d rows", len(got))
	}
}

func TestIsDrivenFromOutside(t *testing.T) {
	t.Parallel()
	s, c := start(t)
	if err := c.Dataset("intent").Table("people").Inserter().Put(t.Context(), []person{{Name: "x"}}); err != nil {
		t.Fatal(err)
	}
	post := func(path, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != http.StatusNoContent {
			t.Fatalf("%s: %s", path, res.Status)
		}
	}
	del := func() error {
		job, err := c.Query("DELETE FROM intent.people AS t WHERE t.name = 'x'").Run(t.Context())
		if err != nil {
			return err
		}
		_, err = job.Wait(t.Context())
		return err
	}
	post("/_emulator/streaming", `{"window":"90m","at":"job.wait"}`)
	if err := del(); err == nil || !strings.Contains(err.Error(), "streaming buffer") {
		t.Errorf("a young row was deleted: %v", err)
	}
	post("/_emulator/clock", `{"advance":"2h"}`)
	post("/_emulator/faults", `{"at":"jobs.insert","kind":"delete","code":403,"reason":"accessDenied"}`)
	if err := del(); err == nil || !strings.Contains(err.Error(), "accessDenied") {
		t.Errorf("the fault did not strike: %v", err)
	}
	if err := del(); err != nil {
		t.Error(err)
	}
	post("/_emulator/tables/drop", `{"table":"people"}`)
	if err := del(); err == nil {
		t.Error("a dropped table was deleted from")
	}
	if got := len(s.Statements()); got != 3 {
		t.Errorf("%d statements", got)
	}
}
