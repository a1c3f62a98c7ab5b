package app

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// environment sets exactly these variables of ours.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	all := slices.Concat(variables(reflect.TypeFor[CellConfig]()), variables(reflect.TypeFor[CoordinatorConfig]()))
	for _, name := range all {
		t.Setenv(name, "") // so that the test's end restores it
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range set {
		t.Setenv(name, value)
	}
}

func TestEveryFaultOfTheConfigurationIsNamedAtOnce(t *testing.T) {
	environment(t, map[string]string{
		"LISTEN_ADDR": "nonsense", "STORE_TIMEOUT": "soon", "STORE_BACKEND": "floppy", "AUTH_MODE": "idtoken", "CELL": "ledger",
		"INTENT_SUBJECT_SALT": "short secret", "MAX_IN_FLIGHT": "-1", "BIGQUERY_EMULATOR_HOST": "localhost:1", "INTENT_GRAPH_DURABLE_PROJECT": "p",
	})
	_, err := LoadCell()
	if err == nil {
		t.Fatal("taken")
	}
	for _, name := range []string{
		"LISTEN_ADDR", "STORE_TIMEOUT", "STORE_BACKEND", "AUTH_AUDIENCE", "ALLOWED_CALLER_SA", "CELL", "INTENT_SUBJECT_SALT",
		"MAX_IN_FLIGHT", "BIGQUERY_EMULATOR_HOST", "INTENT_GRAPH_DURABLE_PROJECT",
	} {
		if !strings.Contains(err.Error(), name+": ") && !strings.Contains(err.Error(), name+", ") {
			t.Errorf("%s is not named in:\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "short secret") {
		t.Errorf("a secret is quoted:\n%v", err)
	}
}

func TestEveryFaultOfACoordinatorIsNamedAtOnce(t *testing.T) {
	environment(t, map[string]string{
		"AUTH_MODE": "idtoken", "CASCADE_TIMEOUT": "1s", "INTENT_GRAPH_URL": "http://example.com", "CASCADE_EXTRA_PEERS": "billing=https://user:hush@example.com",
		"ALLOWED_CALLER_SA": "a@p.iam.gserviceaccount.com=rule", "LOG_LEVEL": "loud",
	})
	_, err := LoadCoordinator()
	if err == nil {
		t.Fatal("taken")
	}
	for _, name := range []string{
		"AUTH_AUDIENCE", "CASCADE_TIMEOUT", "INTENT_GRAPH_URL", "CASCADE_EXTRA_PEERS", "CASCADE_EXPECTED_STORES", "ALLOWED_CALLER_SA", "LOG_LEVEL", "INTENT_SUBJECT_SALT",
	} {
		if !strings.Contains(err.Error(), name+": ") && !strings.Contains(err.Error(), name+":\n") {
			t.Errorf("%s is not named in:\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("a secret is quoted:\n%v", err)
	}
}

func TestAnOwnersFileIsReadWithTheRestOfTheConfiguration(t *testing.T) {
	environment(t, map[string]string{"AUTH_MODE": "off", "CELL_CONFIG": "/nowhere/billing.yaml", "RATE_LIMIT": "0"})
	_, err := LoadCell()
	if err == nil || !strings.Contains(err.Error(), "CELL_CONFIG") || !strings.Contains(err.Error(), "RATE_LIMIT: ") {
		t.Errorf("got %v", err)
	}
}

func TestTimeoutsMustNest(t *testing.T) {
	environment(t, map[string]string{"AUTH_MODE": "off", "STORE_TIMEOUT": "30s", "CASCADE_PEER_TIMEOUT": "30s", "CASCADE_TIMEOUT": "20s"})
	_, err := LoadCoordinator()
	if err == nil || !strings.Contains(err.Error(), "CASCADE_PEER_TIMEOUT: ") || !strings.Contains(err.Error(), "CASCADE_TIMEOUT: ") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutAuthenticationOnlyLoopbackIsServed(t *testing.T) {
	for addr, fine := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true, "localhost:80": true, ":80": false, "0.0.0.0:80": false, "10.0.0.1:80": false} {
		environment(t, map[string]string{"AUTH_MODE": "off", "CELL": "ingest", "LISTEN_ADDR": addr})
		if _, err := LoadCell(); (err == nil) != fine {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestASecretPrintsRedacted(t *testing.T) {
	environment(t, map[string]string{"AUTH_MODE": "off", "CELL": "ingest", "INTENT_SUBJECT_SALT": "an open secret of many bytes"})
	c, err := LoadCell()
	if err != nil {
		t.Fatal(err)
	}
	if printed := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(printed, "open secret") {
		t.Errorf("printed: %s", printed)
	}
}

func TestEveryVariableIsInTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(variables(reflect.TypeFor[CellConfig]()), variables(reflect.TypeFor[CoordinatorConfig]())) {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("%s is not in the README's table", name)
		}
	}
}
