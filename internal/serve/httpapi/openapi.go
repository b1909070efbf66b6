package httpapi

import (
	_ "embed"
	"net/http"
)

// document is the OpenAPI 3.1 description of the API. Tests compare it with the table of routes,
// with the types of this package, and with every exchange that they make.
//
//go:embed openapi.json
var document []byte

var documentRoutes = []route{{pattern: "GET /openapi.json", handle: (*call).serveDocument}}

func (c *call) serveDocument() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	return c.sendBytes(http.StatusOK, "application/json", document)
}
