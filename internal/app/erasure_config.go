package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"recount/internal/auth"
	"recount/internal/erasure"
	"recount/internal/httpapi/opendsrapi"
	"recount/internal/ledger"
	"recount/internal/notify"
)

// Erasure is the configuration of erasure requests, which the coordinator has.
type Erasure struct {
	AdminAudience     string        `env:"ADMIN_AUDIENCE"`              // of principals' tokens: not AUTH_AUDIENCE
	AdminPrincipals   string        `env:"ADMIN_PRINCIPALS"`            // email[#sub],…
	BackupHorizonDays *int          `env:"ERASURE_BACKUP_HORIZON_DAYS"` // unset: nobody says how long backups are kept
	LogRetentionDays  int           `env:"ERASURE_LOG_RETENTION_DAYS_MAX" envDefault:"30"`
	DriftLimit        string        `env:"ERASURE_DRIFT_LIMIT" envDefault:"10%"`
	BlastCap          int64         `env:"ERASURE_BLAST_CAP" envDefault:"10000"`
	ApprovalTTL       time.Duration `env:"ERASURE_APPROVAL_TTL" envDefault:"72h"`
	Deadline          time.Duration `env:"ERASURE_DEADLINE" envDefault:"720h"`
	DescriptorKMSKey  string        `env:"DESCRIPTOR_KMS_KEY"`      // gcp: projects/…/cryptoKeys/…
	LedgerSigningKey  Secret        `env:"LEDGER_SIGNING_KEY"`      // new,old
	CallbackHosts     string        `env:"ERASURE_CALLBACK_HOSTS"`  // hosts that callbacks may go to
	CallbackSecret    Secret        `env:"ERASURE_CALLBACK_SECRET"` // whsec_…, new,old

	OpenDSRDomain     string `env:"OPENDSR_DOMAIN"`      // switches the OpenDSR 2.0 surface on: the processor's domain
	OpenDSRSigningKey Secret `env:"OPENDSR_SIGNING_KEY"` // RSA, PEM
	OpenDSRIdentities string `env:"OPENDSR_IDENTITIES"`  // how identities become person ids

	principals auth.Callers
	limits     erasure.Limits
	keys       *ledger.Keys // nil: made in DATA_DIR
	hosts      notify.Hosts
	secrets    notify.WebhookSecrets
	enabled    bool
	identities opendsrapi.Identities
}

// publishedCallbackSecret signs callbacks with AUTH_MODE=off, which only runs on loopback.
const publishedCallbackSecret = "whsec_cmVjb3VudC1kZXZlbG9wbWVudC1jYWxsYmFja3M=" //nolint:gosec // known to everybody, and no secret

// lookEvery and lookOnGCP are how often a coordinator looks for requests that are due.
const (
	lookEvery = time.Second
	lookOnGCP = 10 * time.Second
)

// retryFirst is the first pause before a pending request is driven again; each further one is twice as long.
const retryFirst = 2 * time.Second

// check fills in what the fields mean, and answers every fault.
func (e *Erasure) check(s *Service, cascade time.Duration) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	e.enabled = s.AuthMode == "off" || e.AdminAudience != "" || e.AdminPrincipals != ""
	for name, n := range map[string]*int{"ERASURE_BACKUP_HORIZON_DAYS": e.BackupHorizonDays, "ERASURE_LOG_RETENTION_DAYS_MAX": &e.LogRetentionDays} {
		if n != nil && (*n < 0 || *n > 36_500) {
			fault("%s: %d is no number of days", name, *n)
		}
	}
	if e.BlastCap <= 0 {
		fault("ERASURE_BLAST_CAP: %d must be above 0 rows", e.BlastCap)
	}
	for name, d := range map[string]time.Duration{"ERASURE_APPROVAL_TTL": e.ApprovalTTL, "ERASURE_DEADLINE": e.Deadline} {
		if d < time.Minute {
			fault("%s: %s is too short: give at least 1m", name, d)
		}
	}
	drift, err := strconv.ParseFloat(strings.TrimSuffix(e.DriftLimit, "%"), 64)
	if err != nil || !strings.HasSuffix(e.DriftLimit, "%") || drift < 0 || drift > 100 {
		fault("ERASURE_DRIFT_LIMIT: write a share such as 10%%")
	}
	e.limits = erasure.Limits{
		BackupHorizonDays: e.BackupHorizonDays, LogRetentionDays: e.LogRetentionDays, DriftPercent: drift, BlastCap: e.BlastCap,
		ApprovalTTL: e.ApprovalTTL, Deadline: e.Deadline, Lease: 2*cascade + time.Minute, RetryFirst: retryFirst, Look: lookEvery,
	}
	if s.StoreBackend == "gcp" { // every instance asks the database, and a scheduler calls too
		e.limits.Look = lookOnGCP
	}
	faults = append(append(faults, e.checkKeys(s)...), e.checkPrincipals(s)...)
	return append(faults, e.checkOpenDSR(s)...)
}

func (e *Erasure) checkOpenDSR(s *Service) (faults []error) {
	if e.OpenDSRDomain == "" {
		return nil
	}
	if !e.enabled {
		faults = append(faults, errors.New("OPENDSR_DOMAIN: OpenDSR files erasure requests: configure ADMIN_AUDIENCE and ADMIN_PRINCIPALS too"))
	}
	text := e.OpenDSRIdentities
	if text == "" {
		text = opendsrapi.DefaultIdentities
	}
	var err error
	if e.identities, err = opendsrapi.ParseIdentities(text); err != nil {
		faults = append(faults, fmt.Errorf("OPENDSR_IDENTITIES: %w", err))
	}
	if key := e.OpenDSRSigningKey.reveal(); key != "" {
		if _, err := notify.NewSigner(key, e.OpenDSRDomain); err != nil {
			faults = append(faults, fmt.Errorf("OPENDSR_SIGNING_KEY: %w", err))
		}
	} else if s.StoreBackend == "gcp" && s.AuthMode == "idtoken" {
		faults = append(faults, errors.New("OPENDSR_SIGNING_KEY: required with STORE_BACKEND=gcp: an RSA key of 2048 bits or more, in PEM"))
	}
	return faults
}

func (e *Erasure) checkPrincipals(s *Service) []error {
	if s.AuthMode != "idtoken" || !e.enabled {
		return nil
	}
	var faults []error
	switch e.AdminAudience {
	case "":
		faults = append(faults, errors.New("ADMIN_AUDIENCE: required with ADMIN_PRINCIPALS: an audience that no caller's token is made out to"))
	case s.AuthAudience:
		faults = append(faults, errors.New("ADMIN_AUDIENCE: must not be AUTH_AUDIENCE: a token that a peer was sent would serve an approver"))
	}
	if e.AdminPrincipals == "" {
		return append(faults, errors.New("ADMIN_PRINCIPALS: required with ADMIN_AUDIENCE: at least two, because two approve, as email[#sub],email[#sub]"))
	}
	var err error
	if e.principals, err = auth.ParsePrincipals(e.AdminPrincipals); err != nil {
		faults = append(faults, fmt.Errorf("ADMIN_PRINCIPALS:\n%w", err))
	} else if len(e.principals) < 2 {
		faults = append(faults, errors.New("ADMIN_PRINCIPALS: name at least two: two distinct principals approve every request"))
	}
	return faults
}

func (e *Erasure) checkKeys(s *Service) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	var err error
	if text := e.LedgerSigningKey.reveal(); text != "" {
		if e.keys, err = ledger.ParseKeys(text); err != nil {
			fault("LEDGER_SIGNING_KEY: %w", err)
		}
	}
	if e.enabled && s.StoreBackend == "gcp" && s.AuthMode == "idtoken" {
		if e.keys == nil && err == nil {
			fault("LEDGER_SIGNING_KEY: required with STORE_BACKEND=gcp for erasure requests: make one with `recount keygen NAME`")
		}
		if e.DescriptorKMSKey == "" {
			fault("DESCRIPTOR_KMS_KEY: required with STORE_BACKEND=gcp for erasure requests: projects/P/locations/L/keyRings/R/cryptoKeys/K")
		}
	}
	if e.hosts, err = notify.ParseHosts(e.CallbackHosts); err != nil && e.CallbackHosts != "" {
		fault("ERASURE_CALLBACK_HOSTS: %w", err)
	}
	secret := e.CallbackSecret.reveal()
	if secret == "" && s.AuthMode == "off" {
		secret = publishedCallbackSecret
	}
	if e.secrets, err = notify.ParseWebhookSecrets(secret); err != nil {
		fault("ERASURE_CALLBACK_SECRET: %w", err)
	}
	if e.CallbackHosts != "" && secret == "" {
		fault("ERASURE_CALLBACK_SECRET: required with ERASURE_CALLBACK_HOSTS: whsec_ and 24 to 64 bytes of base64")
	}
	return faults
}
