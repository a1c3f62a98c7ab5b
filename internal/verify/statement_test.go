package verify

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// judge issues a statement with a good entry, proof and signatures, so that only the statement itself can be refused.
func judge(t *testing.T, i issuer, line string) error {
	t.Helper()
	_, err := Certificate([]byte(i.issue(t, issued{statement: line})), i.keys)
	return err
}

func TestAWellSignedStatementOfWhatIsNotSpecifiedIsRefused(t *testing.T) {
	i := newIssuer(t, "recount-test")
	set := func(name string, value any) func(object) { return func(s object) { s[name] = value } }
	store := func(name string, value any) func(object) {
		return func(s object) {
			changed := goodStore()
			changed[name] = value
			s["stores"] = []any{changed}
		}
	}
	cases := map[string]func(object){
		"no stores": set("stores", []any{}), "a store twice": set("stores", []any{goodStore(), goodStore()}), "a store of null": set("stores", []any{nil}),
		"a stage of its own": set("stages", []any{object{"stage": "x", "status": "skipped"}}), "a stage with more": set("stages", []any{object{"stage": "x", "status": "done", "at": 1}}),
		"v 2": set("v", 2), "v 1.0": set("v", json.RawMessage("1.0")), "an unknown field": set("more", ""), "an unknown policy": set("policy", "hide"),
		"an unknown outcome": set("outcome", "Closed"), "a short commitment": set("commitment", "ab"), "a commitment in upper case": set("commitment", strings.Repeat("AB", 32)),
		"a time with an offset": set("closed_at", "2026-03-01T10:00:00+00:00"), "a local time": set("closed_at", "2026-03-01T10:00:00+02:00"),
		"a day": set("received_at", "2026-03-01"), "a time with a comma": set("received_at", "2026-03-01T10:00:00,5Z"), "a short hour": set("received_at", "2026-03-01T1:00:00Z"),
		"no such day": set("received_at", "2026-02-30T10:00:00Z"), "a number for a time": set("recoverable_until", 5), "an empty time": set("recoverable_until", ""),
		"negative before": store("before", -1), "negative remaining": store("remaining", -1), "remaining -0": store("remaining", json.RawMessage("-0")),
		"remaining 0e0": store("remaining", json.RawMessage("0e0")), "remaining as a string": store("remaining", "0"), "remaining of null": store("remaining", nil),
		"a huge count": store("before", json.RawMessage("9223372036854775808")), "sticky as a word": store("sticky", "true"), "an unknown status": store("status", "gone"),
		"erased with a basis": store("basis", "17(3)(b)"), "an unknown field of a store": store("more", 1),
	}
	for name := range goodStatement() {
		cases["no "+name] = func(s object) { delete(s, name) }
		cases[name+" a list in a list"] = set(name, []any{[]any{}})
		if name != "recoverable_until" && name != "backup_horizon_until" {
			cases[name+" of null"] = set(name, nil)
		}
	}
	for name := range goodStore() {
		cases["a store without "+name] = func(s object) {
			less := goodStore()
			delete(less, name)
			s["stores"] = []any{less}
		}
		if name != "recoverable_until" && name != "before" {
			cases["a store with null as "+name] = store(name, nil)
		}
	}
	for _, basis := range []string{"", "17(3)", "17(3)(f)", "17(3)(b) ", "18(3)(b)", "(b)", "17(3)(B)"} {
		cases["retained with the basis "+basis] = func(s object) {
			kept := retainedStore()
			kept["basis"] = basis
			s["stores"] = []any{kept}
		}
	}
	for name, change := range cases {
		s := goodStatement()
		change(s)
		if err := judge(t, i, encode(t, s)); err == nil {
			t.Errorf("%s passes", name)
		} else {
			refused(t, err, ReasonStatement)
		}
	}
}

func TestAStatementIsOneObjectWithNoMemberTwice(t *testing.T) {
	i := newIssuer(t, "recount-test")
	good := encode(t, goodStatement())
	for name, line := range map[string]string{
		"nothing": "", "null": "null", "a list": "[" + good + "]", "two objects": good + " {}", "a comma too much": good[:len(good)-1] + ",}",
		"a member twice":       `{"v":1,` + good[1:],
		"a member twice, once": strings.Replace(good, `"v":1`, `"v":1,"\u0076":1`, 1),
		"a store's twice":      strings.Replace(good, `"basis":""`, `"basis":"","basis":""`, 1),
		"a lone surrogate":     strings.Replace(good, `"art17"`, `"\ud800"`, 1),
		"another case":         strings.Replace(good, `"v":1`, `"V":1`, 1),
	} {
		if err := judge(t, i, line); err == nil {
			t.Errorf("%s passes", name)
		} else {
			refused(t, err, ReasonStatement, ReasonForm)
		}
	}
}

func TestAnErasedStoreWithSomethingRemainingNeverPassesHoweverWellItIsSigned(t *testing.T) {
	i := newIssuer(t, "recount-test")
	for _, remaining := range []int64{1, 2, 9223372036854775807} {
		s, store := goodStatement(), goodStore()
		store["remaining"] = remaining
		s["stores"] = []any{retainedStore(), store}
		refused(t, judge(t, i, encode(t, s)), ReasonFalseErased)
	}
}

func TestProblemsQuoteNothingOfTheCertificate(t *testing.T) {
	i := newIssuer(t, "recount-test")
	for name := range goodStatement() {
		s := goodStatement()
		s[name] = "alice@example.org"
		if err := judge(t, i, encode(t, s)); err != nil && strings.Contains(fmt.Sprintf("%v %+v", err, err), "alice") {
			t.Errorf("a refusal quotes %s", name)
		}
	}
}
