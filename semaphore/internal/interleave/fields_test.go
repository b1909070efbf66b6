package interleave_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// The scheduler sees atomic values and mutexes. All other memory that goroutines
// share must follow from these: a field is set before anybody else knows what it is
// in, or it is used with a mutex locked. Both are looked after, the first here and
// the second while programs run.

// guardedBy are the fields that change while others know them, and the mutex that
// must be locked for each use, seen from the same struct.
var guardedBy = map[string]string{
	"Owner.ended": "mu",
	"Owner.slots": "mu",
	"entry.pins":  "shard.mu",
	"shard.calls": "mu",
}

// makers are the functions that set fields of what nobody else knows yet.
var makers = map[string]bool{
	"init":            true,
	"Manager.acquire": true, // a slot, for who calls
	"Handle.acquire":  true,
	"NewOwner":        true,
	"shard.init":      true,
}

// fields knows which field of which struct a selector selects.
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
	pkg, _ := config.Check("canal", fset, files, &f.info) // errors are expected: what others' packages have is not known
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

// nothing imports packages that have nothing: enough to know canal's own structs.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	pkg := types.NewPackage(name, name[strings.LastIndexByte(name, '/')+1:])
	pkg.MarkComplete()
	return pkg, nil
}

// name is that of the field that n selects; "" if n is something else.
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

// changes says which field, or variable of the package, is changed where others
// could know it, without a guard.
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
				wrong = fmt.Errorf("%s: %s changes %s: say in fields_test.go which mutex guards it, or that nobody else can "+
					"know it yet",
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

// funcName is the name of a function, with the type of its receiver.
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
