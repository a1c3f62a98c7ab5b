// Package api is the contract of the HTTP surface as a document: OpenAPI 3.1, served by every cell.
package api

import _ "embed"

// OpenAPI is the document, YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte
