package intake

import "recount/internal/subject"

// The Art. 15(1) cards of the tables that are ours.
var (
	eventsCard = subject.Card{
		Purposes:           []string{"understanding what a person is interested in, on the basis named in each row's consent_basis"},
		Categories:         []string{"behavioural events", "identifiers", "event payloads as sent by the source"},
		Recipients:         []string{"the scoring cell of the same deployment"},
		Retention:          "until erasure, or until the owner's own retention deletes it",
		Source:             "the system named in each row's source",
		Transfers:          "none by this service; the storage location is the deployment's",
		AutomatedDecisions: "none in this store; events feed the scores",
	}
	scoresCard = subject.Card{
		Purposes:           []string{"ranking what is likely to interest a person"},
		Categories:         []string{"scores and the features that they were computed from", "identifiers"},
		Recipients:         []string{"the callers of the scoring cell"},
		Retention:          "until erasure, or until a newer model replaces it at its source",
		Source:             "computed by the model named in each row's model_version",
		Transfers:          "none by this service; the storage location is the deployment's",
		AutomatedDecisions: "profiling: a score is computed by a model from the features in the same row; it ranks content and has no legal effect by itself",
	}
	graphCard = subject.Card{
		Purposes:           []string{"knowing which identifiers and people belong together"},
		Categories:         []string{"relations between two identities", "identifiers"},
		Recipients:         []string{"the scoring cell of the same deployment"},
		Retention:          "until one of the two people is erased",
		Source:             "the system named in each row's source",
		Transfers:          "none by this service; the storage location is the deployment's",
		AutomatedDecisions: "none in this store",
	}
	holdoutsCard = subject.Card{
		Purposes:           []string{"measuring whether a treatment has an effect, by leaving some people out of it"},
		Categories:         []string{"experiment arm", "identifiers"},
		Recipients:         []string{"none"},
		Retention:          "until erasure, or until the experiment is closed at its source",
		Source:             "computed from the experiment, the tenant and the identity alone",
		Transfers:          "none by this service; the storage location is the deployment's",
		AutomatedDecisions: "a hash decides the arm; no trait of the person enters it",
	}
	outcomesCard = subject.Card{
		Purposes:           []string{"measuring whether a treatment has an effect"},
		Categories:         []string{"measured outcomes", "identifiers"},
		Recipients:         []string{"none"},
		Retention:          "until erasure, or until the experiment is closed at its source",
		Source:             "the system named in each row's source",
		Transfers:          "none by this service; the storage location is the deployment's",
		AutomatedDecisions: "none in this store",
	}
)
