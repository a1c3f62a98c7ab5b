package app

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"recount/internal/auth"
	"recount/internal/cascade"
	"recount/internal/ledger"
)

type manifest struct {
	Kind     string
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct {
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				ServiceAccountName string `yaml:"serviceAccountName"`
				TimeoutSeconds     int    `yaml:"timeoutSeconds"`
				Containers         []struct {
					Image         string
					Ports         []struct{ Name string }
					StartupProbe  probe `yaml:"startupProbe"`
					LivenessProbe probe `yaml:"livenessProbe"`
					Env           []struct {
						Name      string
						Value     string
						ValueFrom *struct {
							SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
						} `yaml:"valueFrom"`
					}
				}
			}
		}
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

var placeholders = map[string]string{
	"PROJECT": "demo-project", "PROJECT_NUMBER": "123456", "REGION": "europe-west1", "LOCATION": "EU", "DATASET": "intent",
	"REGISTRY": "registry.example", "VERSION": "v1", "NETWORK": "default", "SUBNET": "default", "SALT_VERSION": "1", "SUPPRESSION_KEY_VERSION": "1",
	"LEDGER_KEY_VERSION": "1", "DESCRIPTOR_KMS_KEY": "projects/p/locations/eu/keyRings/r/cryptoKeys/k", "BACKUP_HORIZON_DAYS": "35",
	"ADMIN_PRINCIPALS": "dpo@example.com,counsel@example.com",
	"DSAR_SA":          "dsar@example.iam.gserviceaccount.com", "IMPORTER_SA": "importer@example.iam.gserviceaccount.com",
}

func readManifest(t *testing.T, name string) manifest {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "cloudrun", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`\$\{(\w+)\}`).ReplaceAllStringFunc(string(raw), func(p string) string {
		value, known := placeholders[strings.Trim(p, "${}")]
		if !known {
			t.Errorf("%s has %s, which deploy.sh does not fill in", name, p)
		}
		return value
	})
	text = strings.ReplaceAll(text, "…", "")
	var m manifest
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// variables are the environment variables of a config struct.
func variables(config reflect.Type) []string {
	var names []string
	for i := range config.NumField() {
		f := config.Field(i)
		if f.Anonymous {
			names = append(names, variables(f.Type)...)
		} else if name := f.Tag.Get("env"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func TestEveryManifestStartsItsService(t *testing.T) {
	for _, name := range []string{"coordinator", "ingest", "graph", "causal"} {
		t.Run(name, func(t *testing.T) {
			m := readManifest(t, name)
			spec := m.Spec.Template.Spec
			if m.Kind != "Service" || len(spec.Containers) != 1 {
				t.Fatalf("kind %q, %d containers", m.Kind, len(spec.Containers))
			}
			container := spec.Containers[0]
			known := variables(reflect.TypeFor[CellConfig]())
			if name == "coordinator" {
				known = variables(reflect.TypeFor[CoordinatorConfig]())
			}
			for _, variable := range variables(reflect.TypeFor[CellConfig]()) {
				t.Setenv(variable, "") // nothing of this machine's
			}
			t.Setenv("PORT", "8080")
			for _, e := range container.Env {
				if !slices.Contains(known, e.Name) {
					t.Errorf("%s is no variable of this service", e.Name)
				}
				value := e.Value
				if e.ValueFrom != nil {
					value = "a secret of sixteen bytes or more"
				}
				if e.Name == "LEDGER_SIGNING_KEY" {
					var err error
					if value, err = ledger.GenerateKey("recount"); err != nil {
						t.Fatal(err)
					}
				}
				t.Setenv(e.Name, value)
			}
			unsetEmpty(t, known)
			check(t, name)
			if m.Metadata.Annotations["run.googleapis.com/ingress"] != "internal" || m.Spec.Template.Metadata.Annotations["run.googleapis.com/cpu-throttling"] != "false" {
				t.Error("ingress must be internal, and billing by instance")
			}
			if spec.ServiceAccountName != "recount-"+name+"@demo-project.iam.gserviceaccount.com" {
				t.Errorf("account %s", spec.ServiceAccountName)
			}
			if container.LivenessProbe.HTTPGet.Path != "/health" || container.Ports[0].Name != "h2c" {
				t.Error("the liveness probe is /health, the port speaks h2c")
			}
			wantStart := map[bool]string{true: "/health", false: "/ready"}[name == "graph"] // docs/decisions/004
			if container.StartupProbe.HTTPGet.Path != wantStart {
				t.Errorf("start-up probe %s, want %s", container.StartupProbe.HTTPGet.Path, wantStart)
			}
			if limit := time.Duration(spec.TimeoutSeconds) * time.Second; limit <= 60*time.Second {
				t.Errorf("the platform's timeout of %s is not above the cascade's", limit)
			}
		})
	}
}

// unsetEmpty removes variables that are empty, which is not the same as their default.
func unsetEmpty(t *testing.T, names []string) {
	t.Helper()
	for _, name := range names {
		if os.Getenv(name) == "" {
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// check loads the configuration as the service would.
func check(t *testing.T, name string) {
	t.Helper()
	var service Service
	if name == "coordinator" {
		c, err := LoadCoordinator()
		if err != nil {
			t.Fatal(err)
		}
		peers, err := cascade.ParsePeers(cascade.PeerEnv{IngestURL: c.IngestURL, GraphURL: c.GraphURL, CausalURL: c.CausalURL}, coordinatorCell)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range peers {
			if p.URL == "" {
				t.Errorf("peer %s has no URL", p.Name)
			}
			if peer := readManifest(t, p.Name); !strings.Contains(fmt.Sprint(peer.Spec.Template.Spec.Containers[0].Env), "{AUTH_AUDIENCE "+p.URL+" ") {
				t.Errorf("the audience of %s is not the URL that the coordinator calls", p.Name)
			}
		}
		service = c.Service
	} else {
		c, err := LoadCell()
		if err != nil {
			t.Fatal(err)
		}
		service = c.Service
	}
	callers, err := auth.ParseCallers(service.Callers)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range callers {
		if importer := strings.HasPrefix(c.Email, "importer@"); importer && c.Has(auth.Erase|auth.Read) {
			t.Error("an importer may write, and nothing else")
		}
		if strings.HasPrefix(c.Email, "dsar@") && !c.Has(auth.Read|auth.Erase) {
			t.Error("the DSAR tool reads and erases at every cell")
		}
	}
}

func TestADryRunOfTheDeploymentRunsNothingAndFillsInEverything(t *testing.T) {
	script := exec.CommandContext(t.Context(), "bash", "../../deploy/cloudrun/deploy.sh", "--dry-run")
	script.Env = []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range placeholders {
		script.Env = append(script.Env, name+"="+value)
	}
	out, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	if left := regexp.MustCompile(`\$\{[A-Z_]+\}`).FindString(text); left != "" {
		t.Errorf("%s was not filled in", left)
	}
	last := -1
	for _, step := range []string{"== accounts", "== tables", "== grants on data", "== log exclusion", "name: recount-ingest", "name: recount-coordinator", "== who may call", "jobs create http recount-resume"} {
		at := strings.Index(text, step)
		if at <= last {
			t.Errorf("%q is missing or out of order", step)
		}
		last = at
	}
	for _, service := range []string{"ingest", "graph", "causal", "coordinator"} {
		if !strings.Contains(text, "add-iam-policy-binding recount-"+service+" --project demo-project --region europe-west1 --member serviceAccount:dsar@") {
			t.Errorf("the DSAR tool may not invoke %s", service)
		}
	}
	without := exec.CommandContext(t.Context(), "bash", "../../deploy/cloudrun/deploy.sh", "--dry-run")
	without.Env = []string{"PATH=" + os.Getenv("PATH")}
	if out, err := without.CombinedOutput(); err == nil || !strings.Contains(string(out), "set PROJECT") {
		t.Errorf("without its variables: %v %s", err, out)
	}
}
