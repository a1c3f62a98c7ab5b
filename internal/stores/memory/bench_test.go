package memory

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

// edges makes rows between people drawn at random.
func edges(from, n, people int) []stores.Row {
	table := storetest.EdgesTable()
	rows := make([]stores.Row, n)
	for i := range rows {
		rows[i] = storetest.NewRow(table, "acme", "crm", fmt.Sprintf("contact-%09d", from+i),
			fmt.Sprintf("person-%07d@example.com", rand.IntN(people)), fmt.Sprintf("person-%07d@example.com", rand.IntN(people)))
	}
	return rows
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 500} {
		b.Run(fmt.Sprintf("rows=%d", size), func(b *testing.B) {
			g := newGraph(b)
			rows := edges(0, b.N*size, 100_000)
			b.ResetTimer()
			for i := range b.N {
				if _, err := g.Append(b.Context(), rows[i*size:(i+1)*size], 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "edges/s")
		})
	}
}

func BenchmarkAppendParallel(b *testing.B) {
	g := newGraph(b)
	rows := edges(0, b.N, 100_000)
	var next atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := next.Add(1) - 1
			if _, err := g.Append(b.Context(), rows[i:i+1], 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkErase erases people of about so many edges each, whose neighbours have a hundred thousand.
func BenchmarkErase(b *testing.B) {
	table := storetest.EdgesTable()
	for _, degree := range []int{12, 1000} {
		b.Run(fmt.Sprintf("degree=%d", degree), func(b *testing.B) {
			g := newGraph(b)
			for i := range 100_000 {
				row := storetest.NewRow(table, "acme", "hub", fmt.Sprint(i), "hub", fmt.Sprint("n", i))
				if _, err := g.Append(b.Context(), []stores.Row{row}, 0); err != nil {
					b.Fatal(err)
				}
			}
			rows := make([]stores.Row, degree)
			for i := range rows {
				rows[i] = storetest.NewRow(table, "acme", "alice", fmt.Sprint(i), "alice", "hub")
			}
			alice := []subject.Subject{who(b, "alice")}
			for b.Loop() {
				b.StopTimer()
				if _, err := g.Append(b.Context(), rows, 0); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if m := g.Erase(b.Context(), alice); !m[0].Remaining.IsZero() {
					b.Fatal("not erased")
				}
			}
		})
	}
}

// BenchmarkMemory reports what an edge costs, its share of its people included (ten edges per person).
func BenchmarkMemory(b *testing.B) {
	const n = 500_000
	for b.Loop() {
		g := newGraph(b)
		before := heap()
		for from := 0; from < n; from += 1000 {
			if _, err := g.Append(b.Context(), edges(from, 1000, n/5), 0); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/n, "B/edge")
		runtime.KeepAlive(g)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
