package subject

import (
	"maps"
	"slices"
)

// DefaultDeny names fields that an access never shows: secrets, and the identifiers of other people. Scores and
// features that were computed about the person are theirs to see and are not on it.
func DefaultDeny() []string {
	return []string{
		"password", "passwd", "password_hash", "secret", "client_secret", "api_key", "apikey", "token", "access_token",
		"refresh_token", "id_token", "session_token", "private_key", "authorization", "cookie", "set_cookie", "otp", "pin",
		"cvv", "recovery_code", "referrer_identity_id", "referred_by", "invited_by", "recipient_identity_id", "contact_emails",
		"contact_phones", "address_book", "other_identity_id", "counterparty_identity_id",
	}
}

// scrub removes the denied names at any depth, and identity fields that name somebody else, and answers what is left
// and the names that it removed. The rows are changed in place: they were made for this answer.
func scrub(rows []map[string]any, deny, identityFields []string, s Subject) ([]map[string]any, []string) {
	denied := make(map[string]bool, len(deny))
	for _, name := range deny {
		denied[name] = true
	}
	removed := make(map[string]bool)
	if len(identityFields) == 1 {
		identityFields = nil // the store matched the row by it: a spelling in another case is the person's own
	}
	for _, row := range rows {
		for _, field := range identityFields {
			if value, present := row[field]; present && value != any(s.Identity()) {
				delete(row, field)
				removed[field] = true
			}
		}
		scrubObject(row, denied, removed)
	}
	return rows, slices.Sorted(maps.Keys(removed))
}

func scrubObject(object map[string]any, denied, removed map[string]bool) {
	for name, value := range object {
		if denied[name] {
			delete(object, name)
			removed[name] = true
			continue
		}
		scrubValue(value, denied, removed)
	}
}

func scrubValue(value any, denied, removed map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		scrubObject(v, denied, removed)
	case []any:
		for _, element := range v {
			scrubValue(element, denied, removed)
		}
	}
}
