package httpapi

import (
	_ "embed"
	"net/http"
)

// document describes all that the API answers to (OpenAPI 3.1). Tests hold it
// against the table of routes, against the types of this package, and against every
// exchange that they have.
//
//go:embed openapi.json
var document []byte

var documentRoutes = []route{{pattern: "GET /openapi.json", handle: (*call).tellDocument}}

func (c *call) tellDocument() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	return c.sendBytes(http.StatusOK, "application/json", document)
}
