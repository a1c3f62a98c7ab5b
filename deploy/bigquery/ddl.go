// Package bigquery holds the DDL of the tables that the services own on BigQuery, for whoever has to create or check
// them: the files beside this one are the deployment's own.
package bigquery

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed *.sql
var files embed.FS

// Statements are the CREATE TABLE statements, one per table, in the order of their file names.
func Statements() ([]string, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("listing the DDL: %w", err)
	}
	out := make([]string, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading the DDL: %w", err)
		}
		out[i] = string(text)
	}
	return out, nil
}
