package app

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"recount/internal/cascade"
	"recount/internal/wire"
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

// served is a configuration of a cell behind tokens, without a fault.
func served(with ...string) map[string]string {
	set := map[string]string{
		"AUTH_MODE": "idtoken", "CELL": "ingest", "AUTH_AUDIENCE": "https://ingest.example.com", "ALLOWED_CALLER_SA": "a@p.iam.gserviceaccount.com",
		"INTENT_SUBJECT_SALT": "a salt of many bytes", "SUPPRESSION_KEY": "a suppression secret", "INTENT_INGEST_URL": "https://ingest.example.com",
		"INTENT_GRAPH_URL": "https://graph.example.com", "INTENT_CAUSAL_URL": "https://causal.example.com",
	}
	for i := 0; i+1 < len(with); i += 2 {
		set[with[i]] = with[i+1]
	}
	return set
}

func TestASuppressionKeyIsRequiredAndLong(t *testing.T) {
	for key, fine := range map[string]bool{
		"": false, "hush": false, "fifteen bytes !": false, "hush,a suppression secret": false, "a suppression secret,hush": false,
		"a suppression secret,": false, "a suppression secret,a suppression secret": false,
		"sixteen bytes ok": true, "a suppression secret": true, "the next suppression secret,a suppression secret": true,
		"the next suppression secret, a suppression secret": true,
	} {
		environment(t, served("SUPPRESSION_KEY", key))
		cell, cellErr := LoadCell()
		_, coordinatorErr := LoadCoordinator()
		for _, err := range []error{cellErr, coordinatorErr} {
			switch {
			case fine && err != nil:
				t.Errorf("%q: %v", key, err)
			case !fine && (err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "\n  SUPPRESSION_KEY: ")):
				t.Errorf("%q: not its one fault: %v", key, err)
			case !fine && (strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "a suppression secret")):
				t.Errorf("a secret is quoted: %v", err)
			}
		}
		if fine && cell.suppression.Width() != 1+strings.Count(key, ",") {
			t.Errorf("%q: %d secrets", key, cell.suppression.Width())
		}
	}
}

func TestTheFirstOfTheSuppressionKeysIsTheCurrentOne(t *testing.T) {
	current := func(key string) []string {
		environment(t, served("SUPPRESSION_KEY", key))
		c, err := LoadCell()
		if err != nil {
			t.Fatal(err)
		}
		return c.suppression.IDs()
	}
	older, newer := current("a suppression secret"), current("the next suppression secret")
	if got := current("the next suppression secret,a suppression secret"); !slices.Equal(got, slices.Concat(newer, older)) {
		t.Errorf("%v of %v and %v", got, newer, older)
	}
}

func TestOnlyWithoutAuthenticationASuppressionKeyIsPublished(t *testing.T) {
	environment(t, map[string]string{"AUTH_MODE": "off", "CELL": "ingest"})
	if c, err := LoadCell(); err != nil || c.suppression.Width() != 1 {
		t.Errorf("%v", err)
	}
	environment(t, map[string]string{"AUTH_MODE": "off", "CELL": "ingest", "SUPPRESSION_KEY": "hush"})
	if _, err := LoadCell(); err == nil || !strings.Contains(err.Error(), "SUPPRESSION_KEY: ") || strings.Contains(err.Error(), "hush") {
		t.Errorf("a short one: %v", err)
	}
}

func TestAFaultOfABackfillIsNamedBeforeAnythingIsServed(t *testing.T) {
	const table = "table=erased,source=source,ref=source_ref,erased_at=erased_at"
	for text, fine := range map[string]bool{
		table + ",tenant=acme": true, table + ",tenant_column=tenant": true, table + ",tenant=acme,reason=why,store=events": true,
		" table = erased": false, table: false, table + ",tenant=acme,tenant_column=tenant": false, table + ",tenant=": false,
		table + ",tenant=acme,": false, table + ",tenant=acme,colour=red": false, table + ",tenant=acme,tenant=globex": false,
		table + ",tenant=acme,cursor=s1.7": false, table + ",tenant=ACME": false, table + ",tenant": false,
		"source=source,ref=source_ref,erased_at=erased_at,tenant=acme": false, "table=erased,ref=source_ref,erased_at=erased_at,tenant=acme": false,
		"table=erased,source=source,erased_at=erased_at,tenant=acme": false, "table=erased,source=source,ref=source_ref,tenant=acme": false,
	} {
		environment(t, served("SUPPRESSION_BACKFILL", text))
		_, err := LoadCell()
		if fine && err != nil || !fine && (err == nil || !strings.Contains(err.Error(), "\n  SUPPRESSION_BACKFILL: ")) {
			t.Errorf("%q: %v", text, err)
		}
	}
	environment(t, served("SUPPRESSION_KEY", "hush", "SUPPRESSION_BACKFILL", "colour=red"))
	if _, err := LoadCell(); err == nil || !strings.Contains(err.Error(), "SUPPRESSION_KEY: ") || !strings.Contains(err.Error(), "SUPPRESSION_BACKFILL: ") {
		t.Errorf("not both at once: %v", err)
	}
}

func TestABackfillIsReadAsItIsWritten(t *testing.T) {
	environment(t, served("SUPPRESSION_BACKFILL", "table=t, source=s, ref=r, erased_at=e, reason=w, store=o, tenant_column=c"))
	c, err := LoadCell()
	want := wire.BackfillRequest{Table: "t", SourceColumn: "s", RefColumn: "r", ErasedAtColumn: "e", ReasonColumn: "w", Store: "o", TenantColumn: "c"}
	if err != nil || c.backfill == nil || *c.backfill != want {
		t.Errorf("%+v, %v", c.backfill, err)
	}
	environment(t, served())
	if c, err := LoadCell(); err != nil || c.backfill != nil {
		t.Errorf("without one: %+v, %v", c.backfill, err)
	}
}

func TestEveryCellOfOursIsAPeerThatAnswersForItsStores(t *testing.T) {
	peers, err := cascade.ParsePeers(cascade.PeerEnv{}, coordinatorCell)
	if err != nil {
		t.Fatal(err)
	}
	stores := map[string][]string{}
	for _, p := range peers {
		stores[p.Name] = p.Stores
	}
	for name, kinds := range cells() {
		if name == coordinatorCell {
			continue
		}
		for _, k := range kinds {
			want := k.Table.Store
			if name == graphCell {
				want = "graph" // with its journal where there is one
			}
			if !slices.Contains(stores[name], want) {
				t.Errorf("the cascade does not ask %s for %s: rows would stay there, and the whole would be erased", name, want)
			}
		}
	}
}
