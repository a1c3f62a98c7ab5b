package firestore

import (
	"context"
	"maps"
	"slices"

	fs "cloud.google.com/go/firestore"

	"recount/internal/stores"
	"recount/internal/subject"
)

// sampled is how many documents of a collection Survey looks at: Firestore has no schema to ask.
const sampled = 100

// Survey lists the root collections and looks at the field names, nested ones as dotted paths, of some documents of
// each. What only later documents have, and collections below documents, it does not see: erasing a document takes what
// is below it.
func (c *Client) Survey(ctx context.Context, covered []stores.Table) ([]stores.Suspect, error) {
	var roots []*fs.CollectionRef
	err := attempt(ctx, func() (err error) {
		roots, err = c.docs.Collections(ctx).GetAll()
		return err
	})
	if err != nil {
		return nil, failed(ctx, err, subject.ReasonReadFailed)
	}
	var suspects []stores.Suspect
	for _, root := range roots {
		names := map[string]bool{}
		docs, err := c.all(ctx, root.Limit(sampled))
		if err != nil {
			return nil, failed(ctx, err, subject.ReasonReadFailed)
		}
		for _, doc := range docs {
			fieldNames("", doc.Data(), names)
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			isCovered := func(t stores.Table) bool { return t.Covers(root.ID, name) }
			if stores.LooksLikeKey(name) && !slices.ContainsFunc(covered, isCovered) {
				suspects = append(suspects, stores.Suspect{Table: root.ID, Column: name})
			}
		}
	}
	return suspects, nil
}

// fieldNames collects dotted paths. The keys of a map may be data (a map by e-mail address): those that are no plain
// names are left out.
func fieldNames(prefix string, fields map[string]any, names map[string]bool) {
	for name, value := range fields {
		if !isPlainName(name) {
			continue
		}
		names[prefix+name] = true
		if nested, ok := value.(map[string]any); ok {
			fieldNames(prefix+name+".", nested, names)
		}
	}
}

func isPlainName(name string) bool {
	for _, r := range name {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return name != "" && (name[0] < '0' || name[0] > '9')
}
