package cell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml"

	"recount/internal/stores"
	"recount/internal/subject"
)

// OwnerConfig is a cell file (CELL_CONFIG): a cell in front of an owner's own tables, with no code.
type OwnerConfig struct {
	Cell   string       `yaml:"cell"`
	Stores []OwnerStore `yaml:"stores"`
}

// OwnerStore is one table or collection of an owner.
type OwnerStore struct {
	Store           string       `yaml:"store"`             // logical name, on receipts
	Backend         string       `yaml:"backend"`           // sqlite, bigquery, firestore
	Path            string       `yaml:"path"`              // sqlite: the database file, relative to the cell file
	Project         string       `yaml:"project"`           // bigquery, firestore: default GCP_PROJECT
	Dataset         string       `yaml:"dataset"`           // bigquery: default BIGQUERY_DATASET
	Location        string       `yaml:"location"`          // bigquery: default BIGQUERY_LOCATION
	Database        string       `yaml:"database"`          // firestore: default FIRESTORE_DATABASE
	Table           string       `yaml:"table"`             // sqlite, bigquery
	Collection      string       `yaml:"collection"`        // firestore
	TenantColumn    string       `yaml:"tenant_column"`     // a field, for firestore
	IdentityColumns []string     `yaml:"identity_columns"`  // one or more
	SourceColumn    string       `yaml:"source_column"`     // optional, with source_ref_column
	SourceRefColumn string       `yaml:"source_ref_column"` // optional, with source_column
	Match           stores.Match `yaml:"match"`             // exact (default) or casefold
	About           subject.Card `yaml:"about"`             // the Art. 15(1) card
}

var (
	cellName  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	storeName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
)

// LoadOwnerConfig reads a cell file and checks it whole: the error names every fault at once, and how to mend it.
func LoadOwnerConfig(path string) (OwnerConfig, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return OwnerConfig{}, fmt.Errorf("CELL_CONFIG: %w", err)
	}
	var c OwnerConfig
	if err := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict()).Decode(&c); err != nil {
		return OwnerConfig{}, fmt.Errorf("CELL_CONFIG %s: %s", path, yaml.FormatError(err, false, false))
	}
	for i := range c.Stores {
		s := &c.Stores[i]
		if s.Path != "" && !filepath.IsAbs(s.Path) {
			s.Path = filepath.Join(filepath.Dir(path), s.Path)
		}
		if s.Match == "" {
			s.Match = stores.MatchExact
		}
	}
	if err := c.check(); err != nil {
		return OwnerConfig{}, fmt.Errorf("CELL_CONFIG %s:\n%w", path, err)
	}
	return c, nil
}

func (c OwnerConfig) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !cellName.MatchString(c.Cell) {
		fault("cell: %q must match [a-z][a-z0-9_-]{0,62}", c.Cell)
	}
	if len(c.Stores) == 0 {
		fault("stores: name at least one; a cell without stores can verify nothing")
	}
	seen := make(map[string]bool)
	for i, s := range c.Stores {
		where := fmt.Sprintf("stores[%d] (%s)", i, s.Store)
		if !storeName.MatchString(s.Store) {
			fault("%s: store must match [a-z][a-z0-9_]{0,62}", where)
		}
		if seen[s.Store] {
			fault("%s: two stores of one name can't be told apart on receipts", where)
		}
		seen[s.Store] = true
		for _, err := range s.check() {
			fault("%s: %w", where, err)
		}
	}
	return errors.Join(faults...)
}

func (s OwnerStore) check() []error {
	var faults []error
	need := func(field, value string) {
		if value == "" {
			faults = append(faults, fmt.Errorf("%s is required for backend %s", field, s.Backend))
		}
	}
	refuse := func(field, value string) {
		if value != "" {
			faults = append(faults, fmt.Errorf("%s has no meaning for backend %s: remove it", field, s.Backend))
		}
	}
	switch s.Backend {
	case "sqlite":
		need("path", s.Path)
		need("table", s.Table)
		for field, value := range map[string]string{"project": s.Project, "dataset": s.Dataset, "location": s.Location, "database": s.Database, "collection": s.Collection} {
			refuse(field, value)
		}
	case "bigquery":
		need("table", s.Table)
		refuse("path", s.Path)
		refuse("database", s.Database)
		refuse("collection", s.Collection)
	case "firestore":
		need("collection", s.Collection)
		for field, value := range map[string]string{"path": s.Path, "dataset": s.Dataset, "location": s.Location, "table": s.Table} {
			refuse(field, value)
		}
	default:
		faults = append(faults, fmt.Errorf("backend %q is none of sqlite, bigquery, firestore", s.Backend))
	}
	need("tenant_column", s.TenantColumn)
	if len(s.IdentityColumns) == 0 {
		faults = append(faults, errors.New("identity_columns: name at least one column that holds the identity"))
	}
	for i, column := range s.IdentityColumns {
		if column == "" || column == s.TenantColumn || slices.Contains(s.IdentityColumns[:i], column) {
			faults = append(faults, fmt.Errorf("identity_columns[%d]: %q is empty, repeated, or the tenant column", i, column))
		}
	}
	if (s.SourceColumn == "") != (s.SourceRefColumn == "") {
		faults = append(faults, errors.New("source_column and source_ref_column go together: give both or neither"))
	}
	if s.Match != stores.MatchExact && s.Match != stores.MatchCasefold {
		faults = append(faults, fmt.Errorf("match %q is neither exact nor casefold", s.Match))
	}
	if len(s.About.Purposes) == 0 || s.About.Retention == "" || s.About.Source == "" {
		faults = append(faults, errors.New("about: an Art. 15(1) card needs at least purposes, retention and source"))
	}
	return faults
}

// AsTable is the store as its adapter takes it.
func (s OwnerStore) AsTable() stores.Table {
	name := s.Table
	if s.Backend == "firestore" {
		name = s.Collection
	}
	return stores.Table{
		Store: s.Store, Name: name, Tenant: s.TenantColumn, Identities: s.IdentityColumns, Source: s.SourceColumn,
		SourceRef: s.SourceRefColumn, Match: s.Match, Card: s.About,
	}
}
