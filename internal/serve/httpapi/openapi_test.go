package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// openAPI is the document, as far as tests need it.
type openAPI struct {
	operations map[string]operation // by method and path: "GET /v1/grab/{path}"
	schemas    map[string]*jsonschema.Schema
	properties map[string][]string // of the schemas that are objects
	enums      map[string][]string
}

type operation struct {
	Parameters  []struct{ Name, In string }
	RequestBody struct{ Content media } `json:"requestBody"`
	Responses   map[string]struct{ Content media }
}

// media are the schemas by media type. All are references, so that they have names.
type media map[string]struct {
	Schema struct {
		Ref  string `json:"$ref"`
		Type any
	}
}

var readDocument = sync.OnceValues(func() (*openAPI, error) {
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi.json", whole); err != nil {
		return nil, err
	}
	var parts struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
				Enum       []any
			}
		}
	}
	if err := json.Unmarshal(document, &parts); err != nil {
		return nil, err
	}
	d := &openAPI{map[string]operation{}, map[string]*jsonschema.Schema{}, map[string][]string{}, map[string][]string{}}
	for name, part := range parts.Components.Schemas {
		if d.schemas[name], err = compiler.Compile("openapi.json#/components/schemas/" + name); err != nil {
			return nil, err
		}
		d.properties[name] = slices.Sorted(maps.Keys(part.Properties))
		for _, value := range part.Enum {
			d.enums[name] = append(d.enums[name], fmt.Sprint(value))
		}
	}
	for path, methods := range parts.Paths {
		if more, ok := methods["x-additionalOperations"]; ok { // methods that OpenAPI 3.1 has no word for
			if err := json.Unmarshal(more, &methods); err != nil {
				return nil, err
			}
		}
		var ofAll []struct{ Name, In string }
		if text, ok := methods["parameters"]; ok {
			if err := json.Unmarshal(text, &ofAll); err != nil {
				return nil, err
			}
		}
		for method, text := range methods {
			if method == "parameters" || method == "x-additionalOperations" {
				continue
			}
			var o operation
			if err := json.Unmarshal(text, &o); err != nil {
				return nil, err
			}
			o.Parameters = append(o.Parameters, ofAll...)
			d.operations[strings.ToUpper(method)+" "+path] = o
		}
	}
	return d, nil
})

func theDocument(t *testing.T) *openAPI {
	t.Helper()
	d, err := readDocument()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A witness sees every exchange of a client, and holds it against the document.
type witness struct {
	t        *testing.T
	document *openAPI
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w *witness) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := w.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	var body []byte
	if media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); media != "text/event-stream" {
		if body, err = io.ReadAll(answer.Body); err != nil {
			return nil, err
		}
		answer.Body.Close()
		answer.Body = io.NopCloser(bytes.NewReader(body))
	}
	if wrong := w.document.judge(r, answer, body); wrong != "" {
		w.t.Errorf("%s %.200s: %d %.500s\nbut openapi.json: %s", r.Method, r.URL.RequestURI(), answer.StatusCode, body, wrong)
	}
	return answer, nil
}

// judge says what of an exchange is not as the document has it; "" if all is.
func (d *openAPI) judge(r *http.Request, answer *http.Response, body []byte) string {
	name, ok := d.find(r)
	if !ok || answer.StatusCode == http.StatusMethodNotAllowed ||
		answer.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		if answer.StatusCode < 400 {
			return "there is no such operation"
		}
		return ""
	}
	o := d.operations[name]
	response, ok := o.Responses[fmt.Sprint(answer.StatusCode)]
	if !ok {
		if answer.StatusCode < 400 {
			return "no such status"
		}
		response = o.Responses["default"]
	}
	if wrong := d.fits(response.Content, answer.Header.Get("Content-Type"), body,
		answer.StatusCode == http.StatusNoContent || r.Method == http.MethodHead); wrong != "" {
		return wrong
	}
	if answer.StatusCode >= 400 {
		return "" // the request was not as it should be
	}
	for parameter := range r.URL.Query() {
		if !slices.ContainsFunc(o.Parameters, func(p struct{ Name, In string }) bool {
			return p.Name == parameter &&
				p.In == "query"
		}) {
			return "no parameter " + parameter
		}
	}
	if r.GetBody == nil || r.ContentLength == 0 {
		return ""
	}
	sent, err := r.GetBody()
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(sent)
	if err != nil {
		return err.Error()
	}
	kind := r.Header.Get("Content-Type")
	if wrong := d.fits(o.RequestBody.Content, kind, text, false); wrong != "" {
		return "request: " + wrong
	}
	return ""
}

// fits says what is wrong with a body; "" if nothing is.
func (d *openAPI) fits(content media, kind string, body []byte, empty bool) string {
	kind, _, _ = mime.ParseMediaType(kind)
	if len(content) == 0 || empty {
		if len(body) > 0 {
			return "there should be no body"
		}
		return ""
	}
	described, ok := content[kind]
	if !ok {
		return fmt.Sprintf("no media type %q", kind)
	}
	if described.Schema.Ref == "" || kind == "text/event-stream" {
		return "" // text
	}
	var value any
	var err error
	if kind == "application/x-www-form-urlencoded" {
		return d.form(described.Schema.Ref, string(body))
	}
	if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
		return err.Error()
	}
	if err := d.schemas[schemaName(described.Schema.Ref)].Validate(value); err != nil {
		return err.Error()
	}
	return ""
}

// form says what is wrong with the names of a form.
func (d *openAPI) form(ref, body string) string {
	fields, err := url.ParseQuery(body)
	if err != nil {
		return err.Error()
	}
	for name := range fields {
		if !slices.Contains(d.properties[schemaName(ref)], name) {
			return "no field " + name
		}
	}
	return ""
}

func schemaName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// find is the operation of a request.
func (d *openAPI) find(r *http.Request) (string, bool) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, route := range allRoutes() {
		s := serve(route)
		if _, ok := s.matches(strings.TrimPrefix(r.URL.Path, "/")); ok && s.method == method {
			name := documented(route.pattern)
			_, ok := d.operations[name]
			return name, ok
		}
	}
	return "", false
}

// documented is a route's pattern as the document writes it.
func documented(pattern string) string { return strings.ReplaceAll(pattern, "...}", "}") }

// TestDocumentHasEveryRoute: every route is an operation, and the other way round.
func TestDocumentHasEveryRoute(t *testing.T) {
	d := theDocument(t)
	routes := map[string]bool{}
	for _, r := range allRoutes() {
		name := documented(r.pattern)
		routes[name] = true
		o, ok := d.operations[name]
		switch {
		case !ok:
			t.Errorf("%s is not in openapi.json", name)
		case r.body != (len(o.RequestBody.Content) > 0):
			t.Errorf("%s: that it takes a body is %v, and openapi.json says otherwise", name, r.body)
		case o.Responses["default"].Content["application/problem+json"].Schema.Ref != "#/components/schemas/Problem":
			t.Errorf("%s: openapi.json has no problem as its default response", name)
		}
		for _, variable := range variables(name) {
			if !slices.ContainsFunc(o.Parameters, func(p struct{ Name, In string }) bool {
				return p.Name == variable &&
					p.In == "path"
			}) {
				t.Errorf("%s: openapi.json does not describe {%s}", name, variable)
			}
		}
	}
	for name := range d.operations {
		if !routes[name] {
			t.Errorf("%s is in openapi.json alone", name)
		}
	}
}

// variables are the names in braces.
func variables(pattern string) (names []string) {
	for _, part := range strings.Split(pattern, "{")[1:] {
		names = append(names, part[:strings.IndexByte(part, '}')])
	}
	return names
}

// TestDocumentHasEveryField: the schemas have the fields that the types have.
func TestDocumentHasEveryField(t *testing.T) {
	d := theDocument(t)
	for name, of := range documentedTypes {
		fields := names(fieldsOf(reflect.TypeOf(of)))
		if want := d.properties[name]; !slices.Equal(fields, want) {
			t.Errorf("%s has the fields %v, and openapi.json %v", name, fields, want)
		}
	}
	for name, of := range map[string]func(int) string{
		"Mode":       func(i int) string { return lockkeeper.Mode(i + 1).String() },
		"State":      func(i int) string { return lockkeeper.State(i + 1).String() },
		"Reason":     func(i int) string { return lockkeeper.Reason(i).String() },
		"WaitReason": func(i int) string { return lockkeeper.WaitReason(i + 1).String() },
	} {
		var want []string
		for i := 0; !strings.Contains(of(i), "("); i++ {
			want = append(want, of(i))
		}
		if !slices.Equal(d.enums[name], want) {
			t.Errorf("%s is %v, and openapi.json has %v", name, want, d.enums[name])
		}
	}
	var kinds []string
	for _, kind := range lockkeeper.AlarmKinds() {
		kinds = append(kinds, string(kind))
	}
	if !slices.Equal(d.enums["AlarmKind"], kinds) {
		t.Errorf("alarms are of the kinds %q, and openapi.json has %q", kinds, d.enums["AlarmKind"])
	}
}

// documentedTypes are the types of the schemas.
var documentedTypes = map[string]any{
	"Status":        lockkeeper.Status{},
	"Blocker":       lockkeeper.Blocker{},
	"Asked":         lockkeeper.Asked{},
	"Grant":         lockkeeper.Grant{},
	"Target":        lockkeeper.Target{},
	"Problem":       problem{},
	"ClaimRequest":  claimRequest{},
	"Amendment":     amendment{},
	"Listing":       claimList{},
	"Stats":         statistics{},
	"Queue":         listing.Queue{},
	"Count":         listing.Count{},
	"Place":         grabAnswer{},
	"GrabRequest":   grabBody{},
	"TerraformLock": lockInfo{},
	"Cluster":       lockkeeper.ClusterStatus{},
	"Alarm":         lockkeeper.Alarm{},
	"Node":          lockkeeper.NodeStatus{},
}

// TestDocumentIsServed: to everybody, and it is what was tested.
func TestDocumentIsServed(t *testing.T) {
	v := newVillage(t)
	if h := v.ask("GET", "/openapi.json", ""); h.code != 200 || h.text != string(document) {
		t.Errorf("%d, %d bytes, want the document", h.code, len(h.text))
	}
	v.refused(400, "unknown parameter", "GET", "/openapi.json?x=1", "")
}

// TestDocumentCheckFindsMistakes: an exchange that is not as the document has it is seen.
func TestDocumentCheckFindsMistakes(t *testing.T) {
	d := theDocument(t)
	for wrong, c := range map[string]struct {
		method, url, sent string
		code              int
		kind, body        string
	}{
		"": {"GET", "/v1/grab/a?as=me", "", 200, "application/json",
			`{"op":"look","path":"a","status":"none"}`},
		"additional": {"GET", "/v1/grab/a?as=me", "", 200, "application/json",
			`{"op":"look","path":"a","status":"none","new":1}`},
		"missing":        {"GET", "/v1/grab/a", "", 200, "application/json", `{"op":"look"}`},
		"no media type":  {"GET", "/v1/grab/a", "", 200, "text/html", ``},
		"no such status": {"GET", "/v1/grab/a", "", 204, "application/json", ``},
		"no parameter x": {"GET", "/v1/grab/a?x=1", "", 200, "application/json",
			`{"op":"look","path":"a","status":"none"}`},
		"no such operation": {"GET", "/v2", "", 200, "application/json", `{}`},
		"request:": {"POST", "/v1/grab/a", `{"op":1}`, 200, "application/json",
			`{"op":"grab","path":"a","status":"ok"}`},
		"'/status'": {"GET", "/v1/grab/a", "", 404, "application/problem+json",
			`{"type":"https://lockkeeper.dev/problems/x","title":"x","status":1}`},
	} {
		r, err := http.NewRequest(c.method, "http://host"+c.url, strings.NewReader(c.sent))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer := &http.Response{StatusCode: c.code, Header: http.Header{"Content-Type": {c.kind}}}
		if got := d.judge(r, answer, []byte(c.body)); got == "" != (wrong == "") || !strings.Contains(got, wrong) {
			t.Errorf("%+v: %q, want %q", c, got, wrong)
		}
	}
}
