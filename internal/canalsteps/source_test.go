package canalsteps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const source = "../../semaphore"

// meetings are the methods and functions by which goroutines meet.
var meetings = []string{"Load", "Store", "Add", "And", "Or", "Swap", "CompareAndSwap", "Lock", "TryLock", "Unlock",
	"Err", "unwatch", "AfterFunc", "AddCleanup", "KeepAlive"}

// TestModelHasEveryOperation compares the table of operations with canal's code: a
// step that the code does and the model does not is a hole in all that the other
// tests show.
func TestModelHasEveryOperation(t *testing.T) {
	code := operations(t)
	for function, texts := range code {
		var want []string
		for _, op := range modelled[function] {
			want = append(want, op.text)
		}
		if !slices.Equal(texts, want) {
			t.Errorf("canal's %s does\n\t%s\nand the model has\n\t%s\nGive the model the steps of the code, and list them in "+
				"source.go", function, strings.Join(texts, ", "), strings.Join(want, ", "))
		}
	}
	used := slices.Clone(outside)
	for function, all := range modelled {
		if code[function] == nil {
			t.Errorf("canal has no %s any more, or it does nothing that others see: take it out of source.go", function)
		}
		for _, op := range all {
			used = append(used, op.steps...)
			if (len(op.steps) == 0) == (op.why == "") {
				t.Errorf("%s, %s: give it steps, or say why it has none", function, op.text)
			}
		}
	}
	for at := range canal {
		if s := canal[at]; s.name != "" && !s.glue && !slices.Contains(used, pc(at)) {
			t.Errorf("step %d (%s) stands for nothing in canal: list it in source.go with what it stands for", at, s.name)
		}
	}
}

// operations lists what each function of canal does by which goroutines meet, in
// the order of the text.
func operations(t *testing.T) map[string][]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s, %v", source, err)
	}
	all := map[string][]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if found := meetingsIn(fn); len(found) > 0 {
					all[functionName(fn)] = found
				}
			}
		}
	}
	return all
}

func meetingsIn(fn *ast.FuncDecl) (found []string) {
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(meetings, f.Sel.Name) {
			found = append(found, operand(f.X)+"."+f.Sel.Name)
		}
		return true
	})
	return found
}

// operand is what an operation is done on, without where that is found.
func operand(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.IndexExpr:
		return "cell"
	}
	return "?"
}

// functionName is a function's name, or its receiver's type and its name.
func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	return receiver.(*ast.Ident).Name + "." + fn.Name.Name
}
