package app

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

type pkg struct {
	ImportPath string
	Imports    []string
}

// packages lists every package of the module with what it imports, tests aside.
func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "recount/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 20 {
		t.Fatalf("only %d packages were found", len(all))
	}
	return all
}

// adapters are the folders below stores, but for the suite: a new one is held to the rules from its first day.
var adapters = func() (names []string) {
	folders, err := os.ReadDir("../stores")
	if err != nil {
		panic(err)
	}
	for _, f := range folders {
		if f.IsDir() && f.Name() != "storetest" {
			names = append(names, f.Name())
		}
	}
	return names
}()

func adapterOf(path string) string {
	rest, found := strings.CutPrefix(path, "recount/internal/stores/")
	name, _, _ := strings.Cut(rest, "/")
	if found && slices.Contains(adapters, name) {
		return name
	}
	return ""
}

// TestImportsRunOneWay holds the picture in docs/architecture.md against the code.
func TestImportsRunOneWay(t *testing.T) {
	allowed := map[string][]string{ // what each room may know of ours, beside itself and below
		"recount/internal/subject": {},
		"recount/internal/wire":    {"subject"},
		"recount/internal/stores":  {"subject", "suppression"},
		"recount/internal/intake":  {"stores", "suppression", "wire", "subject"},
		"recount/internal/cell":    {"intake", "stores", "suppression", "wire", "subject"},

		"recount/internal/suppression": {"subject"},
		"recount/internal/cascade":     {"wire", "subject"},
		"recount/internal/auth":        {"subject"},
		"recount/internal/audit":       {"stores", "subject"},
		"recount/internal/obs":         {"subject"},

		"recount/internal/cli":        {"auth", "ledger", "subject", "verify", "wire"},
		"recount/internal/ledger":     {},
		"recount/internal/verify":     {}, // it shares no code with what writes
		"recount/internal/notify":     {},
		"recount/internal/descriptor": {"stores"},
		"recount/internal/erasure":    {"audit", "ledger", "notify", "stores", "wire", "subject"},
	}
	for _, p := range packages(t) {
		may, restricted := allowed[p.ImportPath]
		for _, imported := range p.Imports {
			rest, ours := strings.CutPrefix(imported, "recount/internal/")
			if restricted && ours && !slices.Contains(may, rest) {
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
			if strings.HasPrefix(p.ImportPath, "recount/cmd/") && ours && rest != "app" && rest != "cli" {
				t.Errorf("%s is more than a thin main: it imports %s", p.ImportPath, imported)
			}
		}
	}
}

func TestTheDomainImportsTheStandardLibraryOnly(t *testing.T) {
	for _, p := range packages(t) {
		if p.ImportPath != "recount/internal/subject" {
			continue
		}
		for _, imported := range p.Imports {
			if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") || first == "recount" {
				t.Errorf("internal/subject imports %s", imported)
			}
		}
	}
}

func TestAdaptersNeverImportEachOtherAndOnlyTheAppKnowsThem(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			to, from := adapterOf(imported), adapterOf(p.ImportPath)
			support := strings.HasSuffix(imported, "/bqemu") || strings.HasSuffix(imported, "/firestoretest") // emulators, no adapters
			if to == "" || to == from || p.ImportPath == "recount/internal/app" || p.ImportPath == "recount/bench" || support {
				continue
			}
			t.Errorf("%s imports the adapter %s", p.ImportPath, imported)
		}
	}
}

func TestOnlyAdaptersSeeAStorageSDKAndOnlyHTTPSeesTheRouter(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			sdk := strings.HasPrefix(imported, "cloud.google.com/go/bigquery") || strings.HasPrefix(imported, "cloud.google.com/go/firestore") ||
				strings.HasPrefix(imported, "modernc.org/sqlite")
			if sdk && adapterOf(p.ImportPath) == "" && p.ImportPath != "recount/bench" { // the benchmarks' baseline is raw
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
			if strings.HasPrefix(imported, "github.com/go-chi/chi") && !strings.HasPrefix(p.ImportPath, "recount/internal/httpapi") {
				t.Errorf("%s imports the router", p.ImportPath)
			}
		}
	}
}
