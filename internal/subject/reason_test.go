package subject

import (
	"os"
	"strings"
	"testing"
)

func TestEveryWordOfTheVocabularyIsDocumented(t *testing.T) {
	documented, err := os.ReadFile("../../docs/receipts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range Reasons() {
		if !strings.Contains(string(documented), "| `"+string(reason)+"` | ") {
			t.Errorf("%s is not in docs/receipts.md", reason)
		}
	}
	if got, want := strings.Count(string(documented), "\n| `"), len(Reasons()); got != want {
		t.Errorf("%d words are documented, %d exist", got, want)
	}
}
