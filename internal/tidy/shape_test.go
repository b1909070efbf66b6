package tidy

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	mostFileLines     = 500
	mostFunctionLines = 70
)

func TestSizes(t *testing.T) {
	tree := loadTree(t)
	for _, f := range tree.files {
		if f.generated {
			continue
		}
		if f.lines > mostFileLines {
			t.Errorf("%s has %d lines, at most %d are allowed: split it where it changes its subject", f.name, f.lines,
				mostFileLines)
		}
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || f.test && isTestName(fn.Name.Name) {
				continue // a test may be a long table
			}
			if lines := tree.line(fn.End()) - tree.line(fn.Pos()) + 1; lines > mostFunctionLines {
				t.Errorf("%s: %s has %d lines, at most %d are allowed: give a part of it a name", tree.at(fn.Pos()), fn.Name.Name,
					lines, mostFunctionLines)
			}
		}
	}
}

func isTestName(name string) bool {
	return slices.ContainsFunc([]string{"Test", "Benchmark", "Fuzz", "Example"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

func TestPackageNames(t *testing.T) {
	for pkg, files := range loadTree(t).packages() {
		for _, bad := range []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "lib"} {
			if path.Base(pkg) == bad || files[0].syntax.Name.Name == bad {
				t.Errorf("package %s: %q says nothing: name it after what it is about, or move its code to where it is used", pkg,
					bad)
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for pkg, files := range loadTree(t).packages() {
		documented := slices.ContainsFunc(files, func(f *goFile) bool { return !f.test && f.syntax.Doc != nil })
		if !documented {
			t.Errorf("package %s has no doc comment: say in one file, above the package clause, what it is for and what it "+
				"promises", pkg)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	tree := loadTree(t)
	for _, f := range tree.files {
		if f.test || f.generated {
			continue
		}
		for _, decl := range f.syntax.Decls {
			for _, name := range undocumented(decl) {
				t.Errorf("%s: %s is exported and has no doc comment: say what it promises: units, limits, errors, concurrency; "+
					"or don't export it", tree.at(name.Pos()), name.Name)
			}
		}
	}
}

// undocumented lists the exported names that decl leaves without a comment.
// Methods of unexported types are not seen, and String and Error need no words.
func undocumented(decl ast.Decl) (names []*ast.Ident) {
	add := func(documented bool, name *ast.Ident) {
		if !documented && name.IsExported() {
			names = append(names, name)
		}
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		plain := d.Recv != nil && (!receiver(d).IsExported() || d.Name.Name == "String" || d.Name.Name == "Error")
		add(d.Doc != nil || plain, d.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				add(s.Doc != nil || d.Doc != nil && !d.Lparen.IsValid(), s.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					add(s.Doc != nil || s.Comment != nil || d.Doc != nil, name)
				}
			}
		}
	}
	return names
}

func receiver(fn *ast.FuncDecl) *ast.Ident {
	kind := fn.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k
		default:
			return fn.Name
		}
	}
}
