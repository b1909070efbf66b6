
-- member is the entry of a claim in queues.
local function member(c)
  return format('%07d%016d', MAX_PRIORITY - c.want[2], c.want[4]) .. c.s.id .. '\0' .. format('%016d', c.id)
end

local function before(a, b)
  return below(member(a), member(b))
end

-- claimOfMember returns the claim that an entry of a queue names.
local function claimOfMember(p, m)
  local id, n = string.match(m, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d(.*)%z(%d+)$')
  local s = id and session(id)
  local c = s and claimOf(s, tonumber(n))
  if not c or not c.inQueue or member(c) ~= m then
    fail(data .. 'q:' .. p.name, 'names a claim that does not wait')
  end
  return c
end

-- A queue is what Redis has, without the entries that are gone, with those added.
local function queue(p)
  if not p.queue then
    p.queue = { key = data .. 'q:' .. p.name, read = {}, all = false, gone = {}, added = {} }
  end
  return p.queue
end

-- prefix returns the first n entries of the queue, or all if it has fewer.
local function prefix(p, n)
  local q = queue(p)
  local wanted = n
  for _ in pairs(q.gone) do
    wanted = wanted + 1
  end
  if not q.all and #q.read < wanted then
    q.read = read('ZRANGE', q.key, 0, wanted - 1)
    q.all = #q.read < wanted
  end
  local list, i, j = {}, 1, 1
  while #list < n do
    local x, y = q.read[i], q.added[j]
    if x and q.gone[x] then
      i = i + 1
    elseif x and (not y or below(x, y)) then
      list[#list + 1], i = x, i + 1
    elseif y then
      list[#list + 1], j = y, j + 1
    else
      break
    end
  end
  return list
end

-- ahead returns how many claims in the queue of p are ahead of c, whether c is in it or not.
local function ahead(p, c)
  local q, m, n = queue(p), member(c), 0
  if q.all then
    for _, x in ipairs(q.read) do
      n = n + (below(x, m) and 1 or 0)
    end
  else
    n = read('ZLEXCOUNT', q.key, '-', '(' .. m)
  end
  for x in pairs(q.gone) do
    n = n - (below(x, m) and 1 or 0)
  end
  for _, x in ipairs(q.added) do
    n = n + (below(x, m) and 1 or 0)
  end
  return n
end

local function enqueue(c)
  local m = member(c)
  for _, name in ipairs(c.paths) do
    local p = path(name)
    p.counter = p.counter or floor
    p.write = true
    local q, first = queue(p), prefix(p, 1)[1]
    if first and below(m, first) then
      touch(claimOfMember(p, first)) -- it is first no more
    end
    if q.gone[m] then
      q.gone[m] = nil
    else
      q.added[#q.added + 1] = m
      table.sort(q.added, below)
    end
  end
  c.inQueue = true
  touch(c)
end

local function dequeue(c)
  if not c.inQueue then
    return
  end
  local m = member(c)
  for _, name in ipairs(c.paths) do
    local p = path(name)
    local q, wasAdded = queue(p), false
    p.write = true
    for i, x in ipairs(q.added) do
      if x == m then
        table.remove(q.added, i)
        wasAdded = true
        break
      end
    end
    if not wasAdded then
      q.gone[m] = true
    end
  end
  c.inQueue = false
  touch(c)
end

-- headOf returns the first claim in the queue that is not without.
local function headOf(p, without)
  for _, m in ipairs(prefix(p, 2)) do
    local c = claimOfMember(p, m)
    if c ~= without then
      return c
    end
  end
end

-- isFirst reports whether no claim but without is ahead of c in the queues of its paths.
local function isFirst(c, without)
  local m = member(c)
  for _, name in ipairs(c.paths) do
    for _, other in ipairs(prefix(path(name), 2)) do
      if below(other, m) and (not without or other ~= member(without)) then
        return false
      end
    end
  end
  return true
end

-- heads returns the waiting claims that are first in the queues of all their paths, if one of these
-- is touched, in the order of queues; and all claims that are first in a touched queue.
local function heads(without)
  local seen, list = {}, {}
  for name in pairs(touched) do
    local c = headOf(path(name), without)
    if c and not seen[c] then
      seen[c] = true
      if isFirst(c, without) then
        list[#list + 1] = c
      end
    end
  end
  table.sort(list, before)
  return list, seen
end

-- holders returns the holders of the paths of c in the order of the paths, none twice.
local function holders(c)
  local list, seen = {}, {}
  for _, name in ipairs(c.paths) do
    local h = path(name).holder
    if h and not seen[h] then
      seen[h] = true
      list[#list + 1] = h
    end
  end
  return list
end
