package intake

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"recount/internal/stores"
	"recount/internal/subject"
)

// Kind is one kind of record: its endpoint, its table, and how a line becomes a row.
type Kind struct {
	Name  string // "events": the metrics' label
	Path  string // "/v1/intent/events"
	Table stores.Table
	parse func(line []byte, now time.Time) (row stores.Row, tenant string, reason string)
}

// Events are what a subject did, taken in by the ingest cell.
func Events() Kind {
	return kind("events", "/v1/intent/events", table("intent_events", eventsCard, nil,
		text("event_type"), instant("occurred_at"), object("payload")), (*eventRecord).row)
}

// Scores are what was computed about a subject, taken in by the scoring cell.
func Scores() Kind {
	return kind("scores", "/v1/intent/scores", table("intent_scores", scoresCard, nil,
		text("model_version"), real("score"), object("features")), (*scoreRecord).row)
}

// Edges are relations between two people, taken in by the graph cell. An edge belongs to both ends. The table is that
// of the journal, which the memory is filled from.
func Edges() Kind {
	return kind("edges", "/v1/intent/graph/edges", table("graph_journal", graphCard, []string{"related_id"},
		text("relation"), object("properties")), (*edgeRecord).row)
}

// Holdouts assign a subject to an experiment's arm, taken in by the causal cell.
func Holdouts() Kind {
	return kind("holdouts", "/v1/intent/holdouts", table("holdout_assignments", holdoutsCard, nil,
		text("experiment"), text("identity_kind"), text("assignment")), (*holdoutRecord).row)
}

// Outcomes are what a subject did within an experiment, taken in by the causal cell.
func Outcomes() Kind {
	return kind("outcomes", "/v1/intent/outcomes", table("outcomes", outcomesCard, nil,
		text("experiment"), text("metric"), real("value")), (*outcomeRecord).row)
}

func text(name string) stores.Column    { return stores.Column{Name: name, Kind: stores.Text} }
func real(name string) stores.Column    { return stores.Column{Name: name, Kind: stores.Real} } //nolint:predeclared,revive // the column kind's own name
func instant(name string) stores.Column { return stores.Column{Name: name, Kind: stores.Instant} }
func object(name string) stores.Column {
	return stores.Column{Name: name, Kind: stores.JSON, Nullable: true}
}

// table puts the columns that every record has in front of a kind's own.
func table(name string, card subject.Card, otherIdentities []string, own ...stores.Column) stores.Table {
	columns := []stores.Column{text(stores.RowIDColumn), text("tenant_id"), text("identity_id")}
	for _, c := range otherIdentities {
		columns = append(columns, text(c))
	}
	columns = append(columns, text("source"), text("source_ref"), text("consent_basis"),
		stores.Column{Name: "derived_from", Kind: stores.JSON, Nullable: true}, instant("ingested_at"))
	return stores.Table{
		Store: name, Name: name, Tenant: "tenant_id", Identities: append([]string{"identity_id"}, otherIdentities...),
		Source: "source", SourceRef: "source_ref", DerivedFrom: "derived_from", Match: stores.MatchExact, Columns: append(columns, own...), Card: card,
	}
}

// head is what every record has.
type head struct {
	TenantID     string          `json:"tenant_id"`
	IdentityID   string          `json:"identity_id"`
	Source       string          `json:"source"`
	SourceRef    string          `json:"source_ref"`
	ConsentBasis string          `json:"consent_basis"`
	DerivedFrom  []stores.Parent `json:"derived_from"`
}

type record interface{ common() *head }

func (h *head) common() *head { return h }

// pointerTo lets kind make the record that it decodes into.
type pointerTo[T any] interface {
	*T
	record
}

func kind[T any, P pointerTo[T]](name, path string, t stores.Table, own func(P) (identities []string, values []any, reason string)) Kind {
	return Kind{Name: name, Path: path, Table: t, parse: func(line []byte, now time.Time) (stores.Row, string, string) {
		r := P(new(T))
		if err := json.Unmarshal(line, r, json.RejectUnknownMembers(true)); err != nil {
			return nil, "", decodeReason(err)
		}
		h := r.common()
		if reason := h.check(); reason != "" {
			return nil, "", reason
		}
		identities, values, reason := own(r)
		if reason != "" {
			return nil, "", reason
		}
		row := make(stores.Row, 0, len(t.Columns))
		row = append(row, uuid.Must(uuid.NewV7()).String(), h.TenantID, h.IdentityID)
		for _, id := range identities {
			row = append(row, id)
		}
		row = append(row, h.Source, h.SourceRef, h.ConsentBasis, h.derivedFrom(), now)
		return append(row, values...), h.TenantID, ""
	}}
}

type eventRecord struct {
	head
	EventType  string         `json:"event_type"`
	OccurredAt string         `json:"occurred_at"`
	Payload    jsontext.Value `json:"payload"`
}

func (r *eventRecord) row() ([]string, []any, string) {
	at, err := time.Parse(time.RFC3339Nano, r.OccurredAt)
	payload, reason := objectText("payload", r.Payload)
	switch {
	case !isShort(r.EventType):
		return nil, nil, "event_type_invalid"
	case err != nil || at.Year() < 1 || at.Year() > 9998:
		return nil, nil, "occurred_at_invalid"
	case reason != "":
		return nil, nil, reason
	}
	return nil, []any{r.EventType, at.UTC().Truncate(time.Microsecond), payload}, ""
}

type scoreRecord struct {
	head
	ModelVersion string         `json:"model_version"`
	Score        *float64       `json:"score"`
	Features     jsontext.Value `json:"features"`
}

func (r *scoreRecord) row() ([]string, []any, string) {
	features, reason := objectText("features", r.Features)
	switch {
	case !isShort(r.ModelVersion):
		return nil, nil, "model_version_invalid"
	case r.Score == nil:
		return nil, nil, "score_missing"
	case reason != "":
		return nil, nil, reason
	}
	return nil, []any{r.ModelVersion, *r.Score, features}, ""
}

type edgeRecord struct {
	head
	RelatedID  string         `json:"related_id"`
	Relation   string         `json:"relation"`
	Properties jsontext.Value `json:"properties"`
}

func (r *edgeRecord) row() ([]string, []any, string) {
	properties, reason := objectText("properties", r.Properties)
	switch {
	case subject.CheckIdentity(r.RelatedID) != nil:
		return nil, nil, "related_id_invalid"
	case !isShort(r.Relation):
		return nil, nil, "relation_invalid"
	case reason != "":
		return nil, nil, reason
	}
	return []string{r.RelatedID}, []any{r.Relation, properties}, ""
}

type holdoutRecord struct {
	head
	Experiment   string `json:"experiment"`
	IdentityKind string `json:"identity_kind"`
}

func (r *holdoutRecord) row() ([]string, []any, string) {
	switch {
	case !isShort(r.Experiment):
		return nil, nil, "experiment_invalid"
	case r.IdentityKind == "probabilistic":
		return nil, nil, ReasonProbabilistic
	case r.IdentityKind != "deterministic":
		return nil, nil, "identity_kind_invalid"
	}
	return nil, []any{r.Experiment, r.IdentityKind, string(Assign(r.Experiment, r.TenantID, r.IdentityID))}, ""
}

type outcomeRecord struct {
	head
	Experiment string   `json:"experiment"`
	Metric     string   `json:"metric"`
	Value      *float64 `json:"value"`
}

func (r *outcomeRecord) row() ([]string, []any, string) {
	switch {
	case !isShort(r.Experiment):
		return nil, nil, "experiment_invalid"
	case !isShort(r.Metric):
		return nil, nil, "metric_invalid"
	case r.Value == nil:
		return nil, nil, "value_missing"
	}
	return nil, []any{r.Experiment, r.Metric, *r.Value}, ""
}
