package subjectapi

import (
	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/subject"
	"recount/internal/wire"
)

const sourceRoot = "/v1/intent/source"

// mountSources adds the erasures that are named by a source and not by a person.
func (s Surface) mountSources(api *httpapi.API) {
	post := func(verb string, serve func(*httpapi.Call) error) {
		api.Mount(httpapi.Resource{Route: sourceRoot + ":" + verb, Methods: map[string]httpapi.Operation{methodPost: s.body(auth.Erase, serve)}})
	}
	post("delete", func(c *httpapi.Call) error { return s.eraseSource(c, s.Cell) })
	post("batchDelete", s.eraseSources)
	post("follow", s.follow)
	if s.Coordinator != nil {
		post("erase", func(c *httpapi.Call) error { return s.eraseSource(c, s.Coordinator) })
	} else {
		api.Mount(httpapi.Resource{Route: sourceRoot + ":erase"})
	}
}

func (s Surface) eraseSource(c *httpapi.Call, by Eraser) error {
	var asked wire.SourceRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	source, err := s.source(c, asked.TenantID, wire.Source{Source: asked.Source, SourceRef: asked.SourceRef})
	if err != nil {
		return err
	}
	return s.eraseTarget(c, by, subject.TargetOfSource(source, s.Cell.Salt()))
}

func (s Surface) source(c *httpapi.Call, tenant string, named wire.Source) (subject.Source, error) {
	if err := c.Tenant(tenant); err != nil {
		return subject.Source{}, err
	}
	source, err := subject.NewSource(tenant, named.Source, named.SourceRef)
	if err != nil {
		return source, httpapi.Unprocessable(err.Error())
	}
	return source, nil
}

// eraseSources is what a coordinator asks a cell for: the sources that other cells resolved, each list under the pseudonym
// of the erasure that it belongs to.
func (s Surface) eraseSources(c *httpapi.Call) error {
	var asked wire.SourceBatchRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	if err := c.Tenant(asked.TenantID); err != nil {
		return err
	}
	keep, err := s.kept(asked.Keep)
	if err != nil {
		return err
	}
	targets, sources := make([]subject.Target, len(asked.Erasures)), 0
	for i, e := range asked.Erasures {
		if !isRef(e.SubjectRef) {
			return httpapi.Unprocessable("subject_ref is 64 lower-case hex digits: the pseudonym that the erasure is written down under")
		}
		targets[i] = subject.Target{Tenant: asked.TenantID, Ref: subject.Ref(e.SubjectRef), Keep: keep}
		if len(e.Sources) == 0 {
			return httpapi.Unprocessable("each erasure names at least one source")
		}
		for _, named := range e.Sources {
			source, err := s.source(c, asked.TenantID, named)
			if err != nil {
				return err
			}
			targets[i].Sources, sources = append(targets[i].Sources, source), sources+1
		}
	}
	if sources == 0 || sources > wire.MaxBatch {
		return httpapi.Unprocessable("a batch names 1 to 1,000 sources in its erasures, all together")
	}
	return s.eraseTargets(c, s.Cell, targets)
}

func isRef(text string) bool {
	if len(text) != 64 {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
