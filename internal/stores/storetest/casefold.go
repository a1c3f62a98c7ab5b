package storetest

import (
	"testing"

	"recount/internal/stores"
)

// runCasefold checks full Unicode case folding of both sides: what a lower() made for ASCII misses.
func runCasefold(t *testing.T, h Harness, table stores.Table) {
	t.Helper()
	table.Match = stores.MatchCasefold
	for name, c := range map[string]struct {
		same  []string
		other []string
	}{
		"ASCII":          {[]string{"alice", "ALICE", "aLiCe"}, []string{"alice ", "alic", "alicee"}},
		"Latin":          {[]string{"ärger", "ÄRGER"}, []string{"arger", "a\u0308rger"}}, // folding is no normalisation
		"sharp s":        {[]string{"straße", "STRASSE", "STRAẞE", "strasse"}, []string{"strase"}},
		"sigma":          {[]string{"όσος", "ΌΣΟΣ", "όσοσ"}, []string{"οσος"}},
		"Kelvin":         {[]string{"k", "K", "\u212a"}, []string{"q"}},
		"Cyrillic":       {[]string{"жанна", "ЖАННА"}, []string{"жана"}},
		"ligature":       {[]string{"\ufb01n", "FIN", "fin"}, []string{"fn"}},
		"pattern":        {[]string{"a%_", "A%_"}, []string{"abc", "a%b"}},
		"dotless i":      {[]string{"i", "I"}, []string{"ı", "İ"}},
		"nothing to do":  {[]string{"007"}, []string{"7"}},
		"Greek iota sub": {[]string{"ᾳ", "αι", "ΑΙ"}, []string{"α"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, h, table)
			for _, id := range append(c.same, c.other...) {
				b.seed(t, b.row(tenant, id))
			}
			for _, id := range c.same {
				b.wantCount(t, who(t, id), int64(len(c.same)))
			}
			b.delete(t, who(t, c.same[0]))
			for _, id := range c.same {
				b.wantCount(t, who(t, id), 0)
			}
			b.wantPhysical(t, int64(len(c.other)))
		})
	}
}
