
-- counterOf returns the highest counter of the claim's paths.
local function counterOf(c)
  local highest = 0
  for _, name in ipairs(c.paths) do
    highest = math.max(highest, path(name).counter or floor)
  end
  return highest
end

local function setCounter(c, counter)
  for _, name in ipairs(c.paths) do
    local p = path(name)
    p.counter, p.write = counter, true
  end
  floor = math.max(floor, counter)
end

local function giveVote(c, vote)
  dequeue(c)
  setCounter(c, vote)
  c.state, c.vote, c.since, c.write = HELD, vote, now, true
  for _, name in ipairs(c.paths) do
    path(name).holder = c
  end
  touch(c)
  changed[c] = true
end

local function removeVote(c)
  for _, name in ipairs(c.paths) do
    local p = path(name)
    p.holder, p.write = false, true
  end
  touch(c)
  c.vote, c.asks, c.stated, c.write = 0, {}, 0, true
end

-- keepEnd adds the end of c to the latest ends, if somebody follows.
local function keepEnd(c)
  if not c.want then
    return
  end
  if not followed then
    followed = number(data .. 'followed', read('GET', data .. 'followed'))
    read('ZSCORE', data .. 'ends', '') -- that it can be written
  end
  if now < followed then
    ends[#ends + 1] = format('%016d', now) .. c.s.id .. '\0' .. format('%016d', c.id) .. cmsgpack.pack(c.reason, c.text)
  end
end

-- conclude ends c.
local function conclude(c, reason)
  c.counter = counterOf(c)
  if c.state == HELD then
    removeVote(c)
  end
  dequeue(c)
  c.state, c.reason, c.lapsed, c.lapseEnd, c.write = ENDED, reason, 0, 0, true
  changed[c] = true
end

-- finish ends c, which may have followers.
local function finish(c, reason)
  conclude(c, reason)
  keepEnd(c)
end

-- leaveUnsure notes until when the holder may rely on a promise that this server breaks.
local function leaveUnsure(c)
  if c.lapsed ~= 0 then
    return
  end
  local relied = c.s.ends
  for _, a in ipairs(c.asks) do
    if a[4] and a[3] ~= 0 then
      relied = math.min(relied, a[3])
    end
  end
  if relied > now then
    c.relied = relied
    for _, name in ipairs(c.paths) do
      local p = path(name)
      if p.unsure > now then
        relied = math.max(p.unsure, relied) + 1 -- nobody's: no single acknowledgement ends the doubt
      end
      p.unsure, p.write, relied = relied, true, c.relied
    end
  end
end

-- makeSure ends the doubt about the ended claim c, if there is any: its session knows of the end.
local function makeSure(c)
  if c.relied == 0 then
    return
  end
  for _, name in ipairs(c.paths) do
    local p = path(name)
    if p.unsure == c.relied then
      p.unsure, p.write = 0, true
    end
  end
  c.relied, c.write = 0, true
end

-- words returns what an operator states, as lockkeeper.Asked.Words does.
local function words(as, note)
  if as == '' then
    return note
  elseif note == '' then
    return 'by ' .. as
  end
  return note .. ' (by ' .. as .. ')'
end

local function endDue()
  for c in pairs(due) do
    if c.state == HELD and not c.s.gone then
      if c.lapsed ~= 0 and c.lapseEnd <= now then
        finish(c, c.lapsed)
        c.finished = true
      else
        for _, a in ipairs(c.asks) do
          if a[1] == '' and a[3] <= now then
            leaveUnsure(c)
            c.text = words(a[5], a[6])
            finish(c, REVOKED)
            break
          end
        end
      end
    end
  end
end

local function steal()
  local stolen = false
  for _, t in ipairs(heads()) do
    if t.want[6] == TAKE then
      local list, ended = holders(t), true
      for _, h in ipairs(list) do
        local one = false
        for _, a in ipairs(h.asks) do
          one = one or a[1] == t.ref and a[3] ~= 0 and a[3] <= now
        end
        ended = ended and one
      end
      for _, h in ipairs(ended and list or {}) do
        leaveUnsure(h)
        finish(h, STOLEN)
        stolen = true
      end
    end
  end
  return stolen
end

local function grant(without)
  local granted = false
  for _, c in ipairs(heads(without)) do
    if #holders(c) == 0 then
      giveVote(c, counterOf(c) + 1)
      granted = true
    end
  end
  return granted
end

-- asks reports whether t asks the holders of its paths.
local function asks(t)
  if t.want[6] == NO_STEAL then
    return false
  end
  for _, h in ipairs(holders(t)) do
    if h.want[2] >= t.want[2] then
      return false
    end
  end
  return true
end

-- shown returns the ask that the state of a claim shows.
local function shown(list)
  local first
  for _, a in ipairs(list) do
    if not first or a[3] ~= 0 and (first[3] == 0 or a[3] < first[3]) then
      first = a
    end
  end
  return first
end

-- endOfAsk returns the end of a new ask of h.
local function endOfAsk(h, after)
  local at = now + math.min(after, h.s.span)
  if at == h.stated then
    at = at + 1
  end
  return at
end

local function sameAsk(a, b)
  return a[1] == b[1] and a[3] == b[3]
end

-- setAsks replaces the asks of h. It reports whether that changed them.
local function setAsks(h, list)
  local was, is = shown(h.asks), shown(list)
  if not was ~= not is or was and not sameAsk(was, is) then
    changed[h] = true
  end
  local different = #list ~= #h.asks
  for i = 1, different and 0 or #list do
    different = different or not sameAsk(list[i], h.asks[i])
  end
  if different then
    h.asks, h.write = list, true
  end
  if is and is[3] ~= 0 then
    h.stated = is[3]
  end
  return different
end

-- thievesOf returns the claims that ask h.
local function thievesOf(h, without)
  local list, seen = {}, {}
  for _, name in ipairs(h.paths) do
    local t = headOf(path(name), without)
    if t and not seen[t] then
      seen[t] = true
      if isFirst(t, without) and asks(t) then
        list[#list + 1] = t
      end
    end
  end
  return list
end

-- asksOf returns the asks of h after a change: those of operators, and one for each thief.
local function asksOf(h, thieves)
  local list = {}
  for _, a in ipairs(h.asks) do
    if a[1] == '' then
      list[#list + 1] = a
    end
  end
  for _, t in ipairs(thieves) do
    local ask
    for _, a in ipairs(h.asks) do
      ask = a[1] == t.ref and a or ask
    end
    if not ask then
      local w, at = t.want, 0
      if w[6] == TAKE then
        at = endOfAsk(h, w[8] > 0 and math.floor(w[8] * h.s.span / 1000) or w[7])
      end
      ask = { t.ref, STOLEN, at, false, w[14], w[15], w[16] }
    end
    list[#list + 1] = ask
  end
  table.sort(list, function(a, b) return below(a[1], b[1]) end)
  return list
end

local function renewAsks()
  local _, firsts = heads()
  local asked = {}
  for name in pairs(touched) do
    local h = path(name).holder
    if h then
      asked[h] = true
    end
  end
  for t in pairs(firsts) do
    for _, h in ipairs(holders(t)) do
      asked[h] = true
    end
  end
  local different = false
  for h in pairs(asked) do
    different = setAsks(h, asksOf(h, thievesOf(h))) or different
  end
  return different
end

-- settle ends what is due, votes and asks, until nothing changes: first as if the claim without,
-- which returned its vote, did not wait. Only touched paths can change.
local function settle(without)
  repeat
    endDue()
    local again = steal()
    again = grant(without) or again
    again = renewAsks() or again
  until not again
end
