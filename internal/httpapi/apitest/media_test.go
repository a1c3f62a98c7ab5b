package apitest

import (
	"github.com/pb33f/libopenapi/datamodel/high/base"
	"github.com/pb33f/libopenapi/datamodel/high/v3"
	"github.com/pb33f/libopenapi/orderedmap"
)

type mediaType struct {
	schema   *base.Schema
	examples []interface{ Decode(v any) error }
}

// mediaTypes are those of a body that have a schema, with their examples.
func mediaTypes(content *orderedmap.Map[string, *v3.MediaType]) map[string]*mediaType {
	out := make(map[string]*mediaType)
	for name, m := range content.FromOldest() {
		if m.Schema == nil {
			continue
		}
		one := &mediaType{schema: m.Schema.Schema()}
		if m.Example != nil {
			one.examples = append(one.examples, m.Example)
		}
		for _, e := range m.Examples.FromOldest() {
			one.examples = append(one.examples, e.Value)
		}
		out[name] = one
	}
	return out
}
