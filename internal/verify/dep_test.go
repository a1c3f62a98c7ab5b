package verify

import (
	"os/exec"
	"strings"
	"testing"
)

func TestTheVerifierSharesNoCodeWithWhatWrites(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	must(t, err)
	packages := strings.Fields(string(out))
	if len(packages) < 20 {
		t.Fatalf("only %d packages were found", len(packages))
	}
	allowed := []string{"recount/internal/verify", "lukechampine.com/blake3", "github.com/go-json-experiment/json", "github.com/klauspost/cpuid/v2"} // blake3 asks the CPU
	for _, path := range packages {
		first, _, _ := strings.Cut(path, "/")
		fine := !strings.Contains(first, ".") && first != "recount"
		for _, prefix := range allowed {
			fine = fine || path == prefix || (strings.HasPrefix(path, prefix+"/") && !strings.HasPrefix(path, "recount/"))
		}
		if !fine {
			t.Errorf("the verifier depends on %s", path)
		}
	}
}
