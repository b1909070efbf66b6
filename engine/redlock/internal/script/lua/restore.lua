
-- mayRestore reports whether the paths of c are without a holder, and nobody can have been granted
-- one of them after the grant with the fence.
local function mayRestore(c, fence, above)
  return #holders(c) == 0 and counterOf(c) <= math.max(fence, above)
end

-- restoreClaim sets a claim that the server lacks.
local function restoreClaim(s, r)
  local n, fence, above, text = r[1], r[2], r[3], r[4]
  local c = claimOf(s, n)
  if c and c.state == ENDED then
    return
  end
  if not c and fence > 0 then
    local tried = {}
    setWant(tried, 'request', text)
    if not mayRestore(tried, fence, above) then
      return
    end
  end
  if not c then
    c = add(s, n, text)
    if not c then
      return refuse(DONE)
    end
    enqueue(c)
  end
  if fence == 0 then
    return
  end
  if c.state == HELD then
    if counterOf(c) < fence then
      setCounter(c, fence)
    end
  elseif mayRestore(c, fence, above) then
    giveVote(c, math.max(fence, above + 1))
  end
end

local function restore(r)
  local s = session(sid)
  if s and s.epoch > epoch then
    reply[3] = s.epoch
    return refuse(OTHER_EPOCH)
  end
  s = s or open(sid)
  adopt(s, epoch)
  raiseLow(s, mark)
  s.ttl, s.to, s.label = r[1], r[2], { r[3], r[4], r[5] }
  extend(s)
  for _, one in ipairs(r[6]) do
    restoreClaim(s, one)
  end
  return lease(s)
end

local function revoke(r)
  local s = session(sid)
  if not s then
    return refuse(NO_SESSION)
  end
  local c = claimOf(s, tonumber(id))
  if not c then
    return refuse(NOT_KNOWN)
  end
  local force, as, note, link = r[1], r[2], r[3], r[4]
  local asked = false
  for _, a in ipairs(c.asks) do
    asked = asked or a[1] == ''
  end
  if c.state == WAITING or c.state == HELD and force then
    if c.state == HELD then
      leaveUnsure(c)
    end
    c.text = words(as, note)
    finish(c, REVOKED)
  elseif c.state == HELD and not asked then
    local list = { { '', REVOKED, endOfAsk(c, s.span), false, as, note, link } }
    for _, a in ipairs(c.asks) do
      list[#list + 1] = a
    end
    setAsks(c, list)
    due[c] = true
  end
  return { c }
end
