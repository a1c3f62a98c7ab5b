// Package app reads the environment, opens what it names and wires the services together. It is the only package that
// knows every adapter.
package app

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"recount/internal/auth"
	"recount/internal/cascade"
	"recount/internal/cell"
	"recount/internal/obs"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

// The secrets of AUTH_MODE=off, which only runs on loopback: known to everybody, and no secrets.
const (
	publishedSalt           = "recount-development-salt-published"
	publishedSuppressionKey = "recount-development-suppression-key-published"
)

// Secret is a configured secret. It prints as "[redacted]".
type Secret struct{ value *string }

// UnmarshalText takes the value from the environment.
func (s *Secret) UnmarshalText(text []byte) error {
	value := string(text)
	s.value = &value
	return nil
}

func (s Secret) reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Format keeps every fmt verb from printing the secret.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// MarshalText keeps the secret out of JSON and logs.
func (Secret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// Service is the configuration that every service has.
type Service struct {
	ListenAddr  string `env:"LISTEN_ADDR"`  // default 127.0.0.1:8080, or :$PORT
	Port        string `env:"PORT"`         // set by Cloud Run
	MetricsAddr string `env:"METRICS_ADDR"` // default: the main listener

	StoreBackend string `env:"STORE_BACKEND" envDefault:"embedded"` // embedded, gcp
	DataDir      string `env:"DATA_DIR"`                            // default ./data/<cell>

	GCPProject            string `env:"GCP_PROJECT"`
	BigQueryDataset       string `env:"BIGQUERY_DATASET" envDefault:"intent"`
	BigQueryLocation      string `env:"BIGQUERY_LOCATION"`
	FirestoreDatabase     string `env:"FIRESTORE_DATABASE" envDefault:"(default)"`
	BigQueryEmulatorHost  string `env:"BIGQUERY_EMULATOR_HOST"`
	FirestoreEmulatorHost string `env:"FIRESTORE_EMULATOR_HOST"`

	StoreTimeout time.Duration `env:"STORE_TIMEOUT" envDefault:"20s"`

	SubjectSalt    Secret `env:"INTENT_SUBJECT_SALT"`
	SuppressionKey Secret `env:"SUPPRESSION_KEY"`                // the current secret, and older ones behind it: new,old
	Backfill       string `env:"SUPPRESSION_BACKFILL"`           // a table of past erasures to take up at the start
	AuthMode       string `env:"AUTH_MODE" envDefault:"idtoken"` // idtoken, off
	AuthAudience   string `env:"AUTH_AUDIENCE"`
	AuthCertsURL   string `env:"AUTH_CERTS_URL"` // tests: where token keys are read, loopback only
	Callers        string `env:"ALLOWED_CALLER_SA"`

	AccessDenyFields []string `env:"ACCESS_DENY_FIELDS"`
	RateLimit        float64  `env:"RATE_LIMIT" envDefault:"5000"`    // requests a second and caller
	MaxInFlight      int      `env:"MAX_IN_FLIGHT" envDefault:"1024"` // requests at a time
	LogLevel         string   `env:"LOG_LEVEL" envDefault:"info"`

	salt        subject.Salt
	suppression *suppression.Keys
	backfill    *wire.BackfillRequest
	callers     auth.Callers
}

// CellConfig is the configuration of cmd/cell.
type CellConfig struct {
	Service
	Cell                string `env:"CELL"`                         // ingest, graph, causal
	CellFile            string `env:"CELL_CONFIG"`                  // or an owner's cell file
	GraphDurableProject string `env:"INTENT_GRAPH_DURABLE_PROJECT"` // gcp: the project of the graph's Firestore journal

	owner cell.OwnerConfig // what CellFile holds
}

// CoordinatorConfig is the configuration of cmd/coordinator.
type CoordinatorConfig struct {
	Service
	Erasure
	IngestURL      string        `env:"INTENT_INGEST_URL"`
	GraphURL       string        `env:"INTENT_GRAPH_URL"`
	CausalURL      string        `env:"INTENT_CAUSAL_URL"`
	ExtraPeers     string        `env:"CASCADE_EXTRA_PEERS"`
	ExpectedStores string        `env:"CASCADE_EXPECTED_STORES"`
	PeerTimeout    time.Duration `env:"CASCADE_PEER_TIMEOUT" envDefault:"30s"`
	Timeout        time.Duration `env:"CASCADE_TIMEOUT" envDefault:"60s"`

	peers []cascade.PeerConfig
}

// LoadCell reads the environment of a cell and checks it whole: the error names every fault at once.
func LoadCell() (CellConfig, error) {
	c, err := env.ParseAs[CellConfig]()
	faults := append(parseFaults(err, c), c.check()...)
	switch {
	case (c.Cell == "") == (c.CellFile == ""):
		faults = append(faults, errors.New("CELL, CELL_CONFIG: set exactly one: CELL=ingest|graph|causal, or CELL_CONFIG=file.yaml"))
	case c.Cell != "":
		if err := checkCell(c.Cell); err != nil {
			faults = append(faults, err)
		}
	default:
		var err error
		if c.owner, err = cell.LoadOwnerConfig(c.CellFile); err != nil {
			faults = append(faults, err)
		}
	}
	if c.GraphDurableProject != "" && (c.Cell != graphCell || c.StoreBackend != "gcp") {
		faults = append(faults, errors.New("INTENT_GRAPH_DURABLE_PROJECT: only for CELL=graph with STORE_BACKEND=gcp; embedded, the journal is always on"))
	}
	return c, join(faults)
}

// LoadCoordinator reads the environment of the coordinator and checks it whole.
func LoadCoordinator() (CoordinatorConfig, error) {
	c, err := env.ParseAs[CoordinatorConfig]()
	faults := append(parseFaults(err, c), c.Service.check()...)
	if c.StoreTimeout+c.StoreTimeout/4 >= c.PeerTimeout {
		faults = append(faults, fmt.Errorf("CASCADE_PEER_TIMEOUT: %s must leave room for STORE_TIMEOUT (%s) and a quarter of it for the recount", c.PeerTimeout, c.StoreTimeout))
	}
	if c.PeerTimeout >= c.Timeout {
		faults = append(faults, fmt.Errorf("CASCADE_TIMEOUT: %s must be longer than CASCADE_PEER_TIMEOUT (%s)", c.Timeout, c.PeerTimeout))
	}
	faults = append(faults, c.Erasure.check(&c.Service, c.Timeout)...)
	c.peers, err = cascade.ParsePeers(cascade.PeerEnv{
		IngestURL: c.IngestURL, GraphURL: c.GraphURL, CausalURL: c.CausalURL, Extra: c.ExtraPeers, ExpectedStores: c.ExpectedStores,
	}, coordinatorCell)
	if err != nil {
		faults = append(faults, err)
	}
	return c, join(faults)
}

// check fills in the defaults that depend on other variables, and answers every fault.
func (s *Service) check() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch {
	case s.ListenAddr == "" && s.Port != "":
		s.ListenAddr = ":" + s.Port
	case s.ListenAddr == "":
		s.ListenAddr = "127.0.0.1:8080"
	}
	for name, addr := range map[string]string{"LISTEN_ADDR": s.ListenAddr, "METRICS_ADDR": s.MetricsAddr} {
		if _, _, err := net.SplitHostPort(addr); err != nil && addr != "" {
			fault("%s: %q is not host:port", name, addr)
		}
	}
	if s.StoreTimeout < 100*time.Millisecond {
		fault("STORE_TIMEOUT: %s is too short: give at least 100ms", s.StoreTimeout)
	}
	if s.RateLimit <= 0 {
		fault("RATE_LIMIT: %v must be above 0 requests a second", s.RateLimit)
	}
	if s.MaxInFlight <= 0 {
		fault("MAX_IN_FLIGHT: %d must be above 0", s.MaxInFlight)
	}
	if _, err := obs.NewLogger(s.LogLevel, io.Discard); err != nil {
		faults = append(faults, err)
	}
	switch s.StoreBackend {
	case "embedded":
	case "gcp":
		if s.GCPProject == "" {
			fault("GCP_PROJECT: required with STORE_BACKEND=gcp")
		}
	default:
		fault("STORE_BACKEND: %q is neither embedded nor gcp", s.StoreBackend)
	}
	faults = append(faults, s.checkAuth()...)
	return append(faults, s.checkSuppression()...)
}

func (s *Service) checkSuppression() []error {
	secret := s.SuppressionKey.reveal()
	switch {
	case secret != "":
	case s.AuthMode == "off":
		secret = publishedSuppressionKey
	default:
		return []error{errors.New("SUPPRESSION_KEY: required with AUTH_MODE=idtoken: 16 bytes or more; to rotate, put the new secret in front of the old one, with a comma between")}
	}
	var faults []error
	var err error
	if s.suppression, err = suppression.ParseKeys(secret); err != nil {
		faults = append(faults, fmt.Errorf("SUPPRESSION_KEY: %w", err))
	}
	if s.Backfill != "" {
		asked, err := parseBackfill(s.Backfill)
		if err != nil {
			faults = append(faults, fmt.Errorf("SUPPRESSION_BACKFILL: %w", err))
		}
		s.backfill = &asked
	}
	return faults
}

func (s *Service) checkAuth() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	var err error
	secret := s.SubjectSalt.reveal()
	switch s.AuthMode {
	case "off":
		if !auth.IsLoopback(s.ListenAddr) {
			fault("AUTH_MODE: off only runs on a loopback address, and LISTEN_ADDR is %q: bind 127.0.0.1, or use AUTH_MODE=idtoken", s.ListenAddr)
		}
		if secret == "" {
			secret = publishedSalt
		}
	case "idtoken":
		if s.AuthAudience == "" {
			fault("AUTH_AUDIENCE: required with AUTH_MODE=idtoken: the URL of this service, shared with no other")
		}
		if s.Callers == "" {
			fault("ALLOWED_CALLER_SA: required with AUTH_MODE=idtoken: name who may call, as email[#sub][=roles[@tenants]]")
		} else if s.callers, err = auth.ParseCallers(s.Callers); err != nil {
			fault("ALLOWED_CALLER_SA:\n%w", err)
		}
		for name, host := range map[string]string{"BIGQUERY_EMULATOR_HOST": s.BigQueryEmulatorHost, "FIRESTORE_EMULATOR_HOST": s.FirestoreEmulatorHost} {
			if host != "" {
				fault("%s: refused with AUTH_MODE=idtoken: unset it", name)
			}
		}
		if secret == "" {
			fault("INTENT_SUBJECT_SALT: required with AUTH_MODE=idtoken: 16 bytes or more, the same in every cell of a deployment")
			return faults
		}
	default:
		fault("AUTH_MODE: %q is neither idtoken nor off", s.AuthMode)
		return faults
	}
	if s.salt, err = subject.NewSalt(secret); err != nil {
		fault("INTENT_SUBJECT_SALT: %w", err)
	}
	return faults
}

// dataDir is DATA_DIR, or the default for the cell of that name.
func (s *Service) dataDir(cell string) string {
	if s.DataDir != "" {
		return s.DataDir
	}
	return filepath.Join("data", cell)
}

// parseFaults names each variable of the configuration that could not be parsed, and nothing of its value.
func parseFaults(err error, config any) []error {
	if err == nil {
		return nil
	}
	var all env.AggregateError
	if !errors.As(err, &all) {
		return []error{err}
	}
	var faults []error
	for _, one := range all.Errors {
		var parse env.ParseError
		if errors.As(one, &parse) {
			one = fmt.Errorf("%s: not a valid %s", variableOf(parse.Name, config), kindOf(parse.Type))
		}
		faults = append(faults, one)
	}
	return faults
}

// kindOf says what a value of the type looks like.
func kindOf(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "duration, such as 20s or 1m30s"
	}
	return "number"
}

// variableOf is the environment variable behind a field, also one of an embedded struct.
func variableOf(field string, config any) string {
	if f, found := reflect.TypeOf(config).FieldByName(field); found {
		return f.Tag.Get("env")
	}
	return field
}

func join(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	var lines []string
	told := make(map[string]bool)
	for _, f := range faults {
		name, _, _ := strings.Cut(f.Error(), ":")
		if !told[name] { // a variable that could not be parsed need not be out of range too
			lines = append(lines, "  "+f.Error())
		}
		told[name] = true
	}
	return errors.New("the configuration has faults:\n" + strings.Join(lines, "\n"))
}
