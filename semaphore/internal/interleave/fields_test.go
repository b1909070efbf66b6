package interleave_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// The scheduler sees atomic values and mutexes. All other shared memory must follow from these: a
// field is set before its struct is shared, or it is used with a mutex locked. This file checks the
// first, Guarded the second while programs run.

// guardedBy maps fields that change while they are shared to the mutex that guards them, as a path
// from the same struct.
var guardedBy = map[string]string{
	"Owner.ended": "mu",
	"Owner.slots": "mu",
	"entry.pins":  "shard.mu",
	"shard.calls": "mu",
}

// makers are the functions that set fields of values that are not shared yet.
var makers = map[string]bool{
	"init":            true,
	"Manager.acquire": true, // a slot, for the caller
	"Handle.acquire":  true,
	"NewOwner":        true,
	"shard.init":      true,
}

// fields finds the field that a selector selects.
type fields struct {
	fset  *token.FileSet
	names map[*types.Var]string // Struct.field
	info  types.Info
	scope *types.Scope
}

func newFields(fset *token.FileSet, files []*ast.File) *fields {
	f := &fields{fset: fset, names: map[*types.Var]string{}}
	f.info.Selections, f.info.Uses = map[*ast.SelectorExpr]*types.Selection{}, map[*ast.Ident]types.Object{}
	config := types.Config{Importer: nothing{}, Error: func(error) {}}
	pkg, _ := config.Check("semaphore", fset, files, &f.info) // errors are expected: the imports are empty
	f.scope = pkg.Scope()
	for _, name := range f.scope.Names() {
		if s, ok := f.scope.Lookup(name).Type().Underlying().(*types.Struct); ok {
			for field := range s.Fields() {
				f.names[field] = name + "." + field.Name()
			}
		}
	}
	return f
}

// nothing imports empty packages, which is enough to check the package's own structs.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	pkg := types.NewPackage(name, name[strings.LastIndexByte(name, '/')+1:])
	pkg.MarkComplete()
	return pkg, nil
}

// name returns the field that n selects, or "".
func (f *fields) name(n ast.Node) string {
	if sel, ok := n.(*ast.SelectorExpr); ok && f.info.Selections[sel] != nil {
		if field, ok := f.info.Selections[sel].Obj().(*types.Var); ok {
			return f.names[field.Origin()]
		}
	}
	return ""
}

// uses lists the uses of guarded fields in a file.
func (f *fields) uses(file *ast.File) (uses []*ast.SelectorExpr) {
	ast.Inspect(file, func(n ast.Node) bool {
		if guardedBy[f.name(n)] != "" {
			uses = append(uses, n.(*ast.SelectorExpr))
		}
		return true
	})
	return uses
}

// changes returns an error for a field or package variable that changes while it may be shared,
// without a guard.
func (f *fields) changes(file *ast.File) (wrong error) {
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || makers[funcName(fn)] {
			continue
		}
		look := func(x ast.Expr) {
			name := f.name(x)
			if id, ok := x.(*ast.Ident); ok && f.info.Uses[id] != nil && f.info.Uses[id].Parent() == f.scope {
				name = id.Name
			}
			if name != "" && guardedBy[name] == "" && wrong == nil {
				wrong = fmt.Errorf("%s: %s changes %s: say in fields_test.go which mutex guards it, or that it is not "+
					"shared yet",
					f.fset.Position(x.Pos()), funcName(fn), name)
			}
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, x := range n.Lhs {
					look(x)
				}
			case *ast.IncDecStmt:
				look(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					look(n.X)
				}
			}
			return true
		})
	}
	return wrong
}

// funcName returns the name of a function, with the type of its receiver.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	x := fn.Recv.List[0].Type
	for {
		switch t := x.(type) {
		case *ast.StarExpr:
			x = t.X
		case *ast.IndexExpr:
			x = t.X
		case *ast.Ident:
			return t.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}
