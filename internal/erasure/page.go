package erasure

import (
	"bytes"
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"strings"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

//go:embed report.html
var pageText string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"date":   func(t any) string { return when(t, "2 January 2006") },
	"moment": func(t any) string { return when(t, "2 Jan 2006, 15:04:05 UTC") },
	"count": func(c subject.Count) string {
		if c.String() == "null" {
			return "not measured"
		}
		return c.String()
	},
	"percent": percent,
	"words": func(text string) string {
		if text == retained {
			return "retained, Art. 17(3)"
		}
		return strings.ReplaceAll(text, "_", " ")
	},
	"short": func(text string) string {
		if len(text) > 16 {
			return text[:16] + "…"
		}
		return text
	},
	"uncounted": uncounted,
	"most": func(stores []wire.StoreOutcome) (most int64) {
		for _, o := range stores {
			n, _ := o.Before.Value()
			m, _ := o.Remaining.Value()
			most = max(most, n, m)
		}
		return most
	},
}).Parse(pageText))

// percent is how long a bar is: nothing is as short as none.
func percent(c subject.Count, most int64) string {
	n, _ := c.Value()
	if n == 0 || most == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f", max(2, float64(n)*100/float64(most)))
}

// uncounted names the stores that sums leave out.
func uncounted(stores []wire.StoreOutcome) string {
	var names []string
	for _, o := range stores {
		_, before := o.Before.Value()
		if _, remaining := o.Remaining.Value(); !before || !remaining {
			names = append(names, o.Cell+"/"+o.Store)
		}
	}
	return strings.Join(names, ", ")
}

func when(t any, layout string) string {
	switch t := t.(type) {
	case time.Time:
		if t.IsZero() {
			return "—"
		}
		return t.UTC().Format(layout)
	case *time.Time:
		if t == nil {
			return "—"
		}
		return t.UTC().Format(layout)
	}
	return "—"
}

// Page is the report as a page that asks for nothing from anywhere, and prints.
func Page(r wire.Report) ([]byte, error) {
	var out bytes.Buffer
	if err := page.Execute(&out, r); err != nil {
		return nil, fmt.Errorf("writing the report's page: %w", err)
	}
	return out.Bytes(), nil
}
